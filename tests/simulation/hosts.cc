#include "tests/simulation/hosts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "codec/archive.h"
#include "shard/machine.h"
#include "tests/simulation/payload_disk.h"

namespace forebay::simulation {
namespace {

shard::Options ShardOptions(const HistoryOptions& options, ShardId id) {
  return {.shard = id,
          .run_seed = options.seed,
          .closed_groups_max = options.closed_groups_max,
          .mutations = options.mutations};
}

ledger::Options LedgerOptions(const HistoryOptions& options) {
  return {.run_seed = options.seed,
          .shards = options.shards,
          .open_steps_max = 2,
          .mutations = options.mutations};
}

void MixIn(const std::vector<PayloadId>& dead, uint64_t* hash) {
  for (const PayloadId id : dead) *hash = HashCombine(*hash, id.value);
}

void AddBrought(const shard::Command& command, Brought* brought) {
  if (const auto* put = std::get_if<shard::PutRollouts>(&command)) {
    for (const shard::RolloutMeta& rollout : put->rollouts)
      brought->payloads.push_back(rollout.payload);
  } else if (const auto* group = std::get_if<shard::PutGroup>(&command)) {
    for (const shard::RolloutMeta& rollout : group->rollouts)
      brought->payloads.push_back(rollout.payload);
    brought->contents.push_back(group->task.content);
  } else if (const auto* add = std::get_if<shard::AddTasks>(&command)) {
    for (const shard::NewTask& task : add->tasks) brought->contents.push_back(task.content);
  }
}

void AddBrought(const ledger::Command& command, Brought* brought) {
  const auto* put = std::get_if<ledger::PutColumns>(&command);
  if (put == nullptr) return;
  for (const ledger::WrittenColumn& column : put->columns)
    brought->payloads.push_back(column.payload);
}

}  // namespace

// --- a shard ---

Node::ShardHost::ShardHost(Node* n, ShardId shard)
    : node(n),
      id(shard),
      machine(
          n->Around(), absl::StrCat("shard-", shard.value),
          [n, shard] { return std::make_unique<shard::State>(ShardOptions(n->options_, shard)); },
          {.committed = [this] { OnCommitted(); },
           .committing =
               [this](const shard::Command& command) {
                 node->observer_->OnShardCommand(id, command);
               },
           .of_twin =
               [this](const shard::Effects& effects) {
                 MixIn(effects.dead_payloads, &twin_dead_hash);
                 MixIn(effects.dead_contents, &twin_dead_hash);
               },
           .recovered = [this](const shard::Command& command,
                               shard::Effects& effects) { Recovered(command, effects); },
           .lost = [this](const shard::Command& command) { Lost(command); },
           .failed = [n] { n->LogFailed(); }}) {
  StartLoop();
}

void Node::ShardHost::StartLoop() {
  loop = std::make_unique<node::ShardLoop>(machine.mutable_state(), &machine.log(), this,
                                           node->queue_->now_ms(), machine.log().applied());
}

bool Node::ShardHost::Restart(MachineDisk::CrashKind kind, bool flip) {
  calls.Clear();
  const bool was_away = away();
  loop = nullptr;
  for (const auto& [push, answer] : std::exchange(held, {})) Lost(push);
  if (!machine.Restart(kind, flip)) return false;
  if (!was_away) StartLoop();
  return true;
}

void Node::ShardHost::OnCommitted() {
  if (away()) return;
  loop->OnCommitted(node->queue_->now_ms());
  while (!held.empty() && !LogFull()) {
    auto [push, answer] = std::move(held.front());
    held.pop_front();
    Propose(std::move(push), std::move(answer));
  }
  node->Arm();
}

void Node::ShardHost::Request(shard::Command command, Answered answer) {
  if (away()) return Lost(command);
  const bool full = LogFull();
  if (std::holds_alternative<shard::PutRollouts>(command) && (full || !held.empty())) {
    node->stats_->Count(Fault::kLogFull);
    held.emplace_back(std::move(command), std::move(answer));
  } else if (full) {
    // A client is told to come again.
    node->stats_->Count(Fault::kLogFull);
  } else {
    Propose(std::move(command), std::move(answer));
  }
}

void Node::ShardHost::Propose(shard::Command command, Answered answer) {
  loop->Propose(node->queue_->now_ms(), calls.Add(std::move(answer)), std::move(command));
}

std::string Node::ShardHost::Compare() const {
  if (state().Hash() != machine.twin().Hash())
    return absl::StrCat("the replicas of shard ", id.value, " differ");
  if (dead_hash != twin_dead_hash)
    return absl::StrCat("the replicas of shard ", id.value, " freed other payloads");
  return "";
}

void Node::ShardHost::AddBroughtTo(Brought* brought) const {
  for (const shard::Command& command : machine.log().commands()) AddBrought(command, brought);
  for (const auto& [push, answer] : held) AddBrought(push, brought);
}

void Node::ShardHost::Recovered(const shard::Command& command, shard::Effects& effects) {
  OnDead(effects.dead_payloads, effects.dead_contents);
  OnCold(effects.cold_payloads);
  for (const codec::NumberedMessage& message : effects.to_ledger) NoteSent(message);
  for (const shard::TaggedReply& reply : effects.replies) Tell(command, reply.reply);
}

// The facts that the answer would have been.
void Node::ShardHost::Tell(const shard::Command& command, const shard::Reply& reply) {
  if (const auto* put = std::get_if<shard::PutRollouts>(&command)) {
    const auto& outcomes = std::get<shard::PutRolloutsReply>(reply).outcomes;
    for (size_t i = 0; i < put->rollouts.size() && i < outcomes.size(); ++i)
      node->NotePushed(put->session, put->rollouts[i], outcomes[i]);
  } else if (const auto* group = std::get_if<shard::PutGroup>(&command)) {
    node->NoteGroupPushed(*group, std::get<shard::PutRolloutsReply>(reply));
  } else if (const auto* rewards = std::get_if<shard::SetRewards>(&command)) {
    node->NoteRewarded(*rewards, std::get<shard::SetRewardsReply>(reply));
  } else if (const auto* assign = std::get_if<shard::Assign>(&command)) {
    node->NoteAssigned(assign->session, std::get<shard::AssignReply>(reply));
  }
}

// The bytes have come, and no state will ever name them.
void Node::ShardHost::Lost(const shard::Command& command) {
  Brought brought;
  AddBrought(command, &brought);
  for (const PayloadId payload : brought.payloads) node->FreeRefused(payload);
  for (const PayloadId content : brought.contents) node->contents_.Free(content);
}

void Node::ShardHost::OnReply(shard::Tag tag, shard::Reply&& reply) { calls.Answer(tag, reply); }

void Node::ShardHost::OnDead(const std::vector<PayloadId>& payloads,
                             const std::vector<PayloadId>& contents) {
  MixIn(payloads, &dead_hash);
  MixIn(contents, &dead_hash);
  node->Die(payloads, &node->payloads_);
  node->Die(contents, &node->contents_);
}

void Node::ShardHost::OnCold(const std::vector<PayloadId>& payloads) {
  for (const PayloadId payload : payloads) {
    node->payloads_.Cool(payload);
    if (node->store_ != nullptr) node->store_->Cool(payload);
  }
}

void Node::ShardHost::NoteSent(const codec::NumberedMessage& message) {
  if (message.number <= last_to_ledger) return;
  last_to_ledger = message.number;
  codec::ToLedger decoded;
  FOREBAY_CHECK(codec::Decode(message.body, &decoded));
  if (const auto* reserved = std::get_if<codec::Reserved>(&decoded))
    node->observer_->OnReserved(id, *reserved);
}

void Node::ShardHost::SendToLedger(const codec::NumberedMessage& message) {
  NoteSent(message);
  node->Between([n = node, shard = id, message] {
    n->ledger_->loop->FromShard(n->queue_->now_ms(), shard, message);
    n->Arm();
  });
}

void Node::ShardHost::AcknowledgeLedger(uint64_t number) {
  node->Between([n = node, shard = id, number] {
    n->ledger_->loop->ShardAcknowledged(n->queue_->now_ms(), shard, number);
  });
}

void Node::ShardHost::OnSummary(const codec::ReadySummary& summary) {
  node->queue_->After(1, [n = node, summary] {
    n->ledger_->loop->OnSummary(n->queue_->now_ms(), summary);
    n->Arm();
  });
}

// --- the ledger ---

Node::LedgerHost::LedgerHost(Node* n)
    : node(n),
      machine(n->Around(), "ledger",
              [n] { return std::make_unique<ledger::State>(LedgerOptions(n->options_)); },
              {.committed = [this] { OnCommitted(); },
               .committing =
                   [this](const ledger::Command& command) {
                     node->observer_->OnLedgerCommand(command);
                   },
               .of_twin =
                   [this](const ledger::Effects& effects) {
                     MixIn(effects.dead_payloads, &twin_dead_hash);
                   },
               .recovered = [this](const ledger::Command& command,
                                   ledger::Effects& effects) { Recovered(command, effects); },
               .lost = [this](const ledger::Command& command) { Lost(command); },
               .failed = [n] { n->LogFailed(); }}) {
  StartLoop();
}

void Node::LedgerHost::StartLoop() {
  loop = std::make_unique<node::LedgerLoop>(machine.mutable_state(), &machine.log(), this,
                                            machine.log().applied());
  loop->primary().SetRetentionBytesMax(node->options_.retention_bytes_max);
  codec::KeepRule keep = node->options_.keep;
  // A setting that was changed.
  if (keep.bytes_max > 0 && node->dice_->OneIn(4)) keep.bytes_max = node->dice_->Below(5'000);
  loop->primary().SetKeep(keep, 0);
  for (const auto& shard : node->shards_)
    loop->primary().SetAnswering(node->queue_->now_ms(), shard->id, !shard->away());
}

bool Node::LedgerHost::Restart(MachineDisk::CrashKind kind, bool flip) {
  calls.Clear();
  loop = nullptr;
  if (!machine.Restart(kind, flip)) return false;
  StartLoop();
  return true;
}

void Node::LedgerHost::OnCommitted() {
  loop->OnCommitted(node->queue_->now_ms());
  node->Arm();
}

void Node::LedgerHost::Request(ledger::Command command, Answered answer) {
  if (LogFull()) return node->stats_->Count(Fault::kLogFull);
  loop->Propose(node->queue_->now_ms(), calls.Add(std::move(answer)), std::move(command));
}

std::string Node::LedgerHost::Compare() const {
  if (state().Hash() != machine.twin().Hash()) return "the replicas of the ledger differ";
  return dead_hash != twin_dead_hash ? "the replicas of the ledger freed other payloads" : "";
}

void Node::LedgerHost::AddBroughtTo(Brought* brought) const {
  for (const ledger::Command& command : machine.log().commands()) AddBrought(command, brought);
}

void Node::LedgerHost::Recovered(const ledger::Command& command, ledger::Effects& effects) {
  OnDead(effects.dead_payloads);
  for (const ledger::Announcement& announcement : effects.announcements)
    OnAnnouncement(announcement);
  for (const ledger::TaggedReply& reply : effects.replies)
    node->NoteTrainerAnswer(command, reply.reply);
  for (const StepId step : effects.steps_changed) OnStepChanged(step);
}

void Node::LedgerHost::Lost(const ledger::Command& command) {
  Brought brought;
  AddBrought(command, &brought);
  for (const PayloadId payload : brought.payloads) node->FreeRefused(payload);
}

void Node::LedgerHost::OnReply(ledger::Tag tag, ledger::Reply&& reply) { calls.Answer(tag, reply); }

void Node::LedgerHost::OnDead(const std::vector<PayloadId>& payloads) {
  MixIn(payloads, &dead_hash);
  node->Die(payloads, &node->payloads_);
}

void Node::LedgerHost::SendToShard(ShardId shard, const codec::NumberedMessage& message) {
  // The worst of moments: it is asked for groups, and never answers.
  codec::ToShard decoded;
  FOREBAY_CHECK(codec::Decode(message.body, &decoded));
  if (node->options_.away > 0 && std::holds_alternative<codec::Reserve>(decoded) &&
      node->dice_->Chance(node->options_.away)) {
    node->queue_->After(0, [n = node, shard] { n->Leave(shard); });
  }
  node->Between([n = node, shard, message] {
    ShardHost& host = *n->shards_[shard.value];
    if (host.away()) return;
    host.loop->FromLedger(n->queue_->now_ms(), message);
    n->Arm();
  });
}

void Node::LedgerHost::AcknowledgeShard(ShardId shard, uint64_t number) {
  node->Between([n = node, shard, number] {
    ShardHost& host = *n->shards_[shard.value];
    if (!host.away()) host.loop->LedgerAcknowledged(n->queue_->now_ms(), number);
  });
}

void Node::LedgerHost::OnStepChanged(StepId step) {
  if (const ledger::Step* changed = state().step(step)) node->observer_->OnStepChanged(*changed);
}

void Node::LedgerHost::OnAnnouncement(const ledger::Announcement& announcement) {
  node->announced_(announcement);
}

}  // namespace forebay::simulation
