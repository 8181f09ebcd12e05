#include "tests/simulation/hosts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "codec/archive.h"
#include "shard/machine.h"

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

template <class State>
std::string SnapshotOf(const State& state) {
  std::string bytes;
  codec::Writer writer(&bytes);
  state.Snapshot(writer);
  return bytes;
}

// What goes through the log comes out the same.
template <class Command>
Command ThroughEncoding(const Command& command, const Node::Alarm& alarm) {
  const std::string bytes = codec::Encode(command);
  Command decoded;
  if (!codec::Decode(bytes, &decoded) || codec::Encode(decoded) != bytes) {
    alarm("7 equal position, equal hash",
          absl::StrCat("command ", command.index(), " changes by its encoding"));
  }
  return decoded;
}

void MixIn(const std::vector<PayloadId>& dead, uint64_t* hash) {
  for (const PayloadId id : dead) *hash = HashCombine(*hash, id.value);
}

template <class State>
void Replace(std::unique_ptr<State>* state, std::unique_ptr<State> restored, const char* name,
             const Node::Alarm& alarm) {
  const std::string bytes = SnapshotOf(**state);
  codec::Reader reader(bytes);
  if (!restored->Restore(reader) || !reader.Done()) {
    alarm("7 equal position, equal hash",
          absl::StrCat("the ", name, " does not take its own snapshot"));
  } else if (restored->Hash() != (*state)->Hash()) {
    alarm("7 equal position, equal hash", absl::StrCat("the restored ", name, " has another hash"));
  }
  *state = std::move(restored);
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

template <class State>
void TwinSnapshot<State>::Step(const State& twin, const Node::Alarm& alarm) {
  if (parts_ == nullptr) {
    if (++commands_ % kCommandsBetween != 0) return;
    expected_ = twin.Hash();
    written_.clear();
    parts_ = std::make_unique<codec::Parts>();
    twin.Snapshot(parts_->writer());
    return;
  }
  if (codec::Piece piece = parts_->Next()) return piece(&written_);
  if (Hash64(written_) != expected_) {
    alarm("7 equal position, equal hash",
          "a snapshot that was written while commands were applied is not of its moment");
  }
  parts_ = nullptr;
}

Brought Node::BroughtAndNotLogged() const {
  Brought brought;
  for (const auto& shard : shards_) {
    for (const shard::Command& command : shard->log.unsynced()) AddBrought(command, &brought);
  }
  for (const ledger::Command& command : ledger_->log.unsynced()) AddBrought(command, &brought);
  return brought;
}

Node::ShardHost::ShardHost(Node* n, ShardId shard)
    : node(n),
      id(shard),
      state(std::make_unique<shard::State>(ShardOptions(n->options_, shard))),
      twin(ShardOptions(n->options_, shard)),
      log(n->options_.sync_ms_max, n->queue_, n->dice_,
          {[this](const shard::Command& command) { Committing(command); },
           [this] { OnCommitted(); }, [this](const shard::Command& command) { Lost(command); }}),
      loop(std::make_unique<node::ShardLoop>(state.get(), &log, this, n->queue_->now_ms())) {}

void Node::ShardHost::Restart() {
  log.Crash();
  calls.Clear();
  loop.reset();
  Replace(&state, std::make_unique<shard::State>(ShardOptions(node->options_, id)), "shard",
          node->alarm_);
  loop = std::make_unique<node::ShardLoop>(state.get(), &log, this, node->queue_->now_ms(),
                                           log.applied());
}

void Node::ShardHost::OnCommitted() {
  loop->OnCommitted(node->queue_->now_ms());
  node->Arm();
}

// The bytes have come, and no state will ever name them.
void Node::ShardHost::Lost(const shard::Command& command) {
  Brought brought;
  AddBrought(command, &brought);
  for (const PayloadId id : brought.payloads) node->FreeRefused(id);
  for (const PayloadId id : brought.contents) node->contents_.Free(id);
}

std::string Node::ShardHost::Compare() const {
  if (state->Hash() != twin.Hash())
    return absl::StrCat("the replicas of shard ", id.value, " differ");
  if (dead_hash != twin_dead_hash)
    return absl::StrCat("the replicas of shard ", id.value, " freed other payloads");
  return "";
}

Node::GroupPlace Node::ShardHost::PlaceOf(AttemptId attempt,
                                          const std::vector<SourceId>& wanted) const {
  const shard::Machine& machine = state->machine();
  const uint32_t slot = machine.tables().Find(attempt);
  if (slot == rollout::kNone) return GroupPlace::kSettled;
  const rollout::GroupRecord& group = machine.tables().group(machine.tables().attempt(slot).group);
  if (group.state != rollout::GroupState::kOpen) return GroupPlace::kSettled;
  const auto counts = [&wanted](SourceId source) {
    return wanted.empty() || std::ranges::find(wanted, source) != wanted.end();
  };
  uint64_t oldest = UINT64_MAX;
  for (size_t i = 0; i < machine.sources().size(); ++i) {
    if (!counts(SourceId(static_cast<uint16_t>(i)))) continue;
    const uint32_t head = machine.sources()[i].open.head();
    if (head != rollout::kNone) oldest = std::min(oldest, machine.tables().group(head).sequence);
  }
  const bool first = counts(group.task.source()) && group.sequence <= oldest;
  return first ? GroupPlace::kOldestOpen : GroupPlace::kOther;
}

void Node::ShardHost::Committing(const shard::Command& command) {
  node->observer_->OnShardCommand(id, command);
  const shard::Command decoded = ThroughEncoding(command, node->alarm_);
  shard::Effects effects;
  twin_snapshot.Step(twin, node->alarm_);
  twin.Apply(decoded, 0, &effects);
  MixIn(effects.dead_payloads, &twin_dead_hash);
  MixIn(effects.dead_contents, &twin_dead_hash);
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
  for (const PayloadId id : payloads) node->payloads_.Cool(id);
}

void Node::ShardHost::SendToLedger(const codec::NumberedMessage& message) {
  if (message.number > last_to_ledger) {
    last_to_ledger = message.number;
    codec::ToLedger decoded;
    FOREBAY_CHECK(codec::Decode(message.body, &decoded));
    if (const auto* reserved = std::get_if<codec::Reserved>(&decoded)) {
      node->observer_->OnReserved(id, *reserved);
    }
  }
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

Node::LedgerHost::LedgerHost(Node* n)
    : node(n),
      state(std::make_unique<ledger::State>(LedgerOptions(n->options_))),
      twin(LedgerOptions(n->options_)),
      log(n->options_.sync_ms_max, n->queue_, n->dice_,
          {[this](const ledger::Command& command) { Committing(command); },
           [this] { OnCommitted(); }, [this](const ledger::Command& command) { Lost(command); }}) {
  StartLoop();
}

void Node::LedgerHost::StartLoop() {
  loop = std::make_unique<node::LedgerLoop>(state.get(), &log, this, log.applied());
  loop->primary().SetRetentionBytesMax(node->options_.retention_bytes_max);
}

void Node::LedgerHost::Restart() {
  log.Crash();
  calls.Clear();
  loop.reset();
  Replace(&state, std::make_unique<ledger::State>(LedgerOptions(node->options_)), "ledger",
          node->alarm_);
  StartLoop();
}

void Node::LedgerHost::OnCommitted() {
  loop->OnCommitted(node->queue_->now_ms());
  node->Arm();
}

void Node::LedgerHost::Lost(const ledger::Command& command) {
  Brought brought;
  AddBrought(command, &brought);
  for (const PayloadId id : brought.payloads) node->FreeRefused(id);
}

std::string Node::LedgerHost::Compare() const {
  if (state->Hash() != twin.Hash()) return "the replicas of the ledger differ";
  return dead_hash != twin_dead_hash ? "the replicas of the ledger freed other payloads" : "";
}

void Node::LedgerHost::Committing(const ledger::Command& command) {
  node->observer_->OnLedgerCommand(command);
  const ledger::Command decoded = ThroughEncoding(command, node->alarm_);
  ledger::Effects effects;
  twin_snapshot.Step(twin, node->alarm_);
  twin.Apply(decoded, 0, &effects);
  MixIn(effects.dead_payloads, &twin_dead_hash);
}

void Node::LedgerHost::OnReply(ledger::Tag tag, ledger::Reply&& reply) { calls.Answer(tag, reply); }

void Node::LedgerHost::OnDead(const std::vector<PayloadId>& payloads) {
  MixIn(payloads, &dead_hash);
  node->Die(payloads, &node->payloads_);
}

void Node::LedgerHost::SendToShard(ShardId shard, const codec::NumberedMessage& message) {
  node->Between([n = node, shard, message] {
    n->shards_[shard.value]->loop->FromLedger(n->queue_->now_ms(), message);
    n->Arm();
  });
}

void Node::LedgerHost::AcknowledgeShard(ShardId shard, uint64_t number) {
  node->Between([n = node, shard, number] {
    n->shards_[shard.value]->loop->LedgerAcknowledged(n->queue_->now_ms(), number);
  });
}

void Node::LedgerHost::OnStepChanged(StepId step) {
  if (const ledger::Step* changed = state->step(step)) node->observer_->OnStepChanged(*changed);
}

void Node::LedgerHost::OnAnnouncement(const ledger::Announcement& announcement) {
  node->announced_(announcement);
}

}  // namespace forebay::simulation
