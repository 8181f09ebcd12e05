#include "tests/simulation/node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "tests/simulation/hosts.h"
#include "tests/simulation/payload_disk.h"

namespace forebay::simulation {
namespace {

constexpr size_t kWaitingPushesMax = 2'000;
constexpr uint64_t kReliefAfterMs = 1'000;  // memory.relief_after_ms

std::vector<PayloadId> PayloadsOf(const ledger::MicroBatchView& view) {
  std::vector<PayloadId> payloads;
  for (const ledger::Slot& slot : view.slots) payloads.push_back(slot.payload);
  for (const ledger::WrittenColumn& column : view.written) {
    if (column.payload != PayloadId()) payloads.push_back(column.payload);
  }
  return payloads;
}

}  // namespace

Node::Node(const HistoryOptions& options, EventQueue* queue, Dice* dice, Stats* stats,
           Observer* observer, Alarm alarm, Announced announced)
    : options_(options),
      queue_(queue),
      dice_(dice),
      stats_(stats),
      observer_(observer),
      alarm_(std::move(alarm)),
      announced_(std::move(announced)),
      payloads_(options.payload_bytes_max),
      contents_(uint64_t{1} << 40) {
  if (options.store) {
    store_ = std::make_unique<PayloadDisk>(
        options, queue, dice, stats, observer,
        [this](const std::string& what) { alarm_(kPayloadsExist, what); },
        [this](PayloadId id) { payloads_.Damage(id); });
  }
  ledger_ = std::make_unique<LedgerHost>(this);
  for (uint32_t i = 0; i < options.shards; ++i) {
    shards_.push_back(std::make_unique<ShardHost>(this, ShardId(static_cast<uint8_t>(i))));
  }
  ledger_->loop->Resend();
}

Node::~Node() = default;

const shard::State& Node::shard(ShardId id) const { return shards_[id.value]->state(); }
const ledger::State& Node::ledger() const { return ledger_->state(); }
bool Node::away(ShardId id) const { return shards_[id.value]->away(); }
size_t Node::waiters(ShardId id) const {
  return away(id) ? 0 : shards_[id.value]->loop->primary().waiters();
}

LogPosition Node::position(ShardId id) const {
  return away(id) ? LogPosition() : shards_[id.value]->loop->position();
}
size_t Node::uncommitted(ShardId id) const {
  return away(id) ? 0 : shards_[id.value]->loop->uncommitted();
}
size_t Node::uncommitted_of_ledger() const { return ledger_->loop->uncommitted(); }

std::vector<node::LogQueue> Node::LogQueues() const {
  std::vector<node::LogQueue> queues;
  for (const auto& shard : shards_) queues.push_back(shard->machine.log().queue());
  queues.push_back(ledger_->machine.log().queue());
  return queues;
}

Brought Node::BroughtAndNotLogged() const {
  Brought brought;
  for (const auto& shard : shards_) shard->AddBroughtTo(&brought);
  ledger_->AddBroughtTo(&brought);
  if (store_ != nullptr) {
    brought.payloads.insert(brought.payloads.end(), store_->writing().begin(),
                            store_->writing().end());
  }
  return brought;
}

Surroundings Node::Around() const { return {options_, queue_, dice_, stats_, alarm_}; }

void Node::ToShard(ShardId shard, shard::Command command,
                   std::function<void(shard::Reply&)> answer) {
  shards_[shard.value]->Request(std::move(command), std::move(answer));
  Arm();
}

void Node::ToLedger(ledger::Command command, std::function<void(ledger::Reply&)> answer) {
  auto observed = [this, command, answer = std::move(answer)](ledger::Reply& reply) {
    NoteTrainerAnswer(command, reply);
    answer(reply);
  };
  ledger_->Request(std::move(command), std::move(observed));
  Arm();
}

void Node::Acquire(ShardId shard, shard::Assign request, uint32_t wait_ms,
                   Answer<shard::AssignReply> answer) {
  ShardHost& host = *shards_[shard.value];
  if (host.away()) return answer({.status = absl::UnavailableError("the shard is away")});
  // The client is told to come again.
  if (host.LogFull()) return stats_->Count(Fault::kLogFull);
  const uint64_t tag = host.calls.Add(
      [this, session = request.session, answer = std::move(answer)](shard::Reply& reply) {
        auto& assigned = std::get<shard::AssignReply>(reply);
        NoteAssigned(session, assigned);
        answer(std::move(assigned));
      });
  host.loop->Acquire(queue_->now_ms(), tag, std::move(request), wait_ms);
  Arm();
}

void Node::Push(SessionId session, std::vector<shard::RolloutMeta> rollouts,
                Answer<shard::PutRolloutsReply> answer) {
  uint64_t bytes = 0;
  for (const shard::RolloutMeta& rollout : rollouts) bytes += rollout.payload_bytes;
  if (waiting_.empty() && payloads_.Fits(bytes))
    return PushNow(session, std::move(rollouts), std::move(answer));
  // Beyond that a client is told to come again.
  if (waiting_.size() >= kWaitingPushesMax) return;
  stats_->Count(Fault::kMemoryWait);
  waiting_.push_back({++last_waiting_, session, std::move(rollouts), std::move(answer), bytes});
}

struct Node::PushJob {
  std::vector<shard::RolloutMeta> rollouts;
  Answer<shard::PutRolloutsReply> answer;
  shard::PutRolloutsReply reply;
  uint32_t waiting = 1;  // parts that are not answered, and Propose
  void Answered() {
    if (--waiting == 0) answer(std::move(reply));
  }
};

void Node::PushNow(SessionId session, std::vector<shard::RolloutMeta> rollouts,
                   Answer<shard::PutRolloutsReply> answer) {
  auto job = std::make_shared<PushJob>();
  job->rollouts = std::move(rollouts);
  job->answer = std::move(answer);
  job->reply.outcomes.resize(job->rollouts.size());
  for (shard::RolloutMeta& rollout : job->rollouts)
    rollout.payload = payloads_.Store(rollout.payload_bytes);
  std::vector<PayloadId> payloads;
  for (const shard::RolloutMeta& rollout : job->rollouts) payloads.push_back(rollout.payload);
  WhenWritten(payloads, [this, session, job] { Propose(session, job); });
}

void Node::Propose(SessionId session, const std::shared_ptr<PushJob>& job) {
  for (uint32_t s = 0; s < shards(); ++s) {
    shard::PutRollouts command{.session = session};
    std::vector<size_t> indexes;
    for (size_t i = 0; i < job->rollouts.size(); ++i) {
      if (job->rollouts[i].lease.attempt.shard().value % shards() != s) continue;
      indexes.push_back(i);
      command.rollouts.push_back(job->rollouts[i]);
    }
    if (indexes.empty()) continue;
    ++job->waiting;
    ToShard(ShardId(static_cast<uint8_t>(s)), std::move(command),
            [this, job, indexes, session](shard::Reply& reply) {
              auto& put = std::get<shard::PutRolloutsReply>(reply);
              for (size_t k = 0; k < indexes.size(); ++k) {
                const size_t i = indexes[k];
                NotePushed(session, job->rollouts[i], put.outcomes[k]);
                job->reply.outcomes[i] = std::move(put.outcomes[k]);
              }
              job->reply.accepted += put.accepted;
              job->Answered();
            });
  }
  job->Answered();
}

void Node::PushGroup(ShardId shard, shard::PutGroup group, Answer<shard::PutRolloutsReply> answer) {
  uint64_t bytes = 0;
  for (const shard::RolloutMeta& rollout : group.rollouts) bytes += rollout.payload_bytes;
  // The client is told to come again.
  if (!payloads_.Fits(bytes) || away(shard) || shards_[shard.value]->LogFull()) return;
  for (shard::RolloutMeta& rollout : group.rollouts)
    rollout.payload = payloads_.Store(rollout.payload_bytes);
  std::vector<PayloadId> payloads;
  for (const shard::RolloutMeta& rollout : group.rollouts) payloads.push_back(rollout.payload);
  WhenWritten(payloads, [this, shard, group, answer = std::move(answer)]() mutable {
    group.task.content = contents_.Store(100);
    if (shards_[shard.value]->LogFull()) return shards_[shard.value]->Lost(group);
    ToShard(shard, group, [this, group, answer](shard::Reply& reply) {
      auto& put = std::get<shard::PutRolloutsReply>(reply);
      NoteGroupPushed(group, put);
      answer(std::move(put));
    });
  });
}

void Node::SetRewards(ShardId shard, shard::SetRewards rewards,
                      Answer<shard::SetRewardsReply> answer) {
  ToShard(shard, rewards, [this, rewards, answer = std::move(answer)](shard::Reply& reply) {
    auto& set = std::get<shard::SetRewardsReply>(reply);
    NoteRewarded(rewards, set);
    answer(std::move(set));
  });
}

shard::RenewReply Node::Renew(ShardId shard, SessionId session,
                              const std::vector<shard::LeaseRef>& leases) {
  if (away(shard)) return {};
  shard::RenewReply reply =
      shards_[shard.value]->loop->primary().Renew(queue_->now_ms(), session, leases, {});
  for (size_t i = 0; i < leases.size(); ++i) {
    observer_->OnRenewed(session, leases[i],
                         reply.actions.empty() ? shard::LeaseAction::kContinue : reply.actions[i]);
  }
  Arm();
  return reply;
}

void Node::AddTasks(ShardId shard, shard::AddTasks tasks, Answer<shard::AddTasksReply> answer) {
  if (away(shard) || shards_[shard.value]->LogFull()) return;
  for (shard::NewTask& task : tasks.tasks) task.content = contents_.Store(100);
  AskShard<shard::AddTasksReply>(shard, std::move(tasks), std::move(answer));
}

void Node::PutColumns(ledger::PutColumns command, Answer<ledger::StatusReply> answer) {
  if (ledger_->LogFull()) return;
  for (ledger::WrittenColumn& column : command.columns) {
    if (!payloads_.Fits(column.bytes)) return;
    column.payload = payloads_.Store(column.bytes);
  }
  std::vector<PayloadId> payloads;
  for (const ledger::WrittenColumn& column : command.columns) payloads.push_back(column.payload);
  WhenWritten(payloads, [this, command, answer = std::move(answer)] {
    if (ledger_->LogFull()) return ledger_->Lost(command);
    ToLedger(command, [answer](ledger::Reply& reply) {
      answer(std::get<ledger::StatusReply>(std::move(reply)));
    });
  });
}

Node::FetchAnswer Node::View(Generation generation, StepId step, Revision revision,
                             const ledger::MicroBatchRef& ref) const {
  if (const absl::Status current = ledger().CheckGeneration(generation); !current.ok())
    return current;
  return ledger().ViewMicroBatch(step, revision, ref);
}

Node::FetchAnswer Node::FetchNow(Generation generation, StepId step, Revision revision,
                                 const ledger::MicroBatchRef& ref) {
  auto view = View(generation, step, revision, ref);
  if (view.ok()) {
    if (auto loaded = Load(*view); !loaded.ok()) view = std::move(loaded);
  }
  observer_->OnFetched(generation, step, revision, ref, view);
  return view;
}

// What was read may belong to a step that is over by then, or to a column that was written anew:
// that is seen by asking once more.
void Node::Fetch(Generation generation, StepId step, Revision revision,
                 const ledger::MicroBatchRef& ref, Answer<FetchAnswer> answer) {
  const auto view = View(generation, step, revision, ref);
  if (store_ == nullptr || !view.ok()) return answer(FetchNow(generation, step, revision, ref));
  std::vector<PayloadId> payloads = PayloadsOf(*view);
  const auto damaged = [this](PayloadId id) { return payloads_.Damaged(id); };
  if (std::ranges::any_of(payloads, damaged))
    return answer(FetchNow(generation, step, revision, ref));
  store_->Read(payloads, [this, generation, step, revision, ref, payloads,
                          answer = std::move(answer)](const absl::Status& read) {
    if (absl::IsUnavailable(read)) return answer(read);
    const auto now = View(generation, step, revision, ref);
    if (now.ok() && PayloadsOf(*now) != payloads)
      return Fetch(generation, step, revision, ref, answer);
    // What is lost counts as damaged by now, and is dropped as such.
    if (now.ok() && !read.ok() && !absl::IsDataLoss(read)) alarm_(kPayloadsExist, read.ToString());
    answer(FetchNow(generation, step, revision, ref));
  });
}

void Node::WhenWritten(const std::vector<PayloadId>& payloads, std::function<void()> then) {
  if (store_ == nullptr) return then();
  store_->Write(payloads, std::move(then));
}

absl::Status Node::Load(const ledger::MicroBatchView& view) {
  const auto of_away = std::ranges::find_if(
      view.slots, [this](const ledger::Slot& slot) { return away(slot.rollout.shard()); });
  // Such moments are rare: a sealed plan that needs what a shard has that is away.
  const double damage = options_.damage * (of_away == view.slots.end() ? 1 : 20);
  if (faults_ && options_.damage > 0 && !view.slots.empty() && dice_->Chance(damage)) {
    stats_->Count(Fault::kDamage);
    const bool column = !view.written.empty() && dice_->OneIn(4);
    const auto& slot =
        of_away == view.slots.end() ? view.slots[dice_->Below(view.slots.size())] : *of_away;
    payloads_.Damage(column ? view.written.front().payload : slot.payload);
  }
  std::map<ShardId, shard::DropDamaged> drops;
  ledger::DropDamaged columns;
  for (const ledger::Slot& slot : view.slots) {
    const ShardId id = slot.rollout.shard();
    const auto attempt = shard(id).AttemptOf(slot.rollout);
    if (!payloads_.Damaged(slot.payload)) continue;
    if (away(id)) {
      // Nobody else can say so while it is away.
      stats_->Count(Fault::kAwayLost);
      columns.payloads.push_back(slot.payload);
      continue;
    }
    shard::DropDamaged& drop = drops[id];
    if (attempt) drop.payloads.push_back({*attempt, slot.payload});
  }
  for (const ledger::WrittenColumn& column : view.written) {
    if (payloads_.Damaged(column.payload)) columns.payloads.push_back(column.payload);
  }
  if (drops.empty() && columns.payloads.empty()) return absl::OkStatus();
  for (const auto& [id, drop] : drops) {
    AskShard<shard::CountReply>(id, drop, [](const shard::CountReply&) {});
  }
  if (!columns.payloads.empty()) {
    AskLedger<ledger::StatusReply>(columns, [](const ledger::StatusReply&) {});
  }
  return absl::DataLossError("a payload is damaged");
}

// Of all that is held, a few.
void Node::DamageSome() {
  stats_->Count(Fault::kDamageAtRestart);
  const auto perhaps = [this](PayloadId id) {
    if (dice_->OneIn(50)) payloads_.Damage(id);
  };
  const auto spared = [](PayloadId) {};
  for (const auto& host : shards_) host->state().ForEachPayload(perhaps, spared);
  ledger().ForEachPayload(perhaps, spared);
}

// As the engine does for what recovery has not found.
void Node::DropDamaged() {
  const std::vector<PayloadId> damaged(payloads_.damaged().begin(), payloads_.damaged().end());
  for (auto& host : shards_) {
    if (host->away()) continue;  // told when it returns
    host->loop->Propose(queue_->now_ms(), 0,
                        shard::DropDamaged{host->state().FindPayloads(damaged)});
  }
  ledger_->loop->Propose(queue_->now_ms(), 0, ledger::DropDamaged{damaged});
}

void Node::NoteAssigned(SessionId session, const shard::AssignReply& reply) {
  for (const shard::Assignment& assignment : reply.assignments) {
    ++stats_->assignments;
    observer_->OnAssigned(session, assignment);
  }
}

void Node::NotePushed(SessionId session, const shard::RolloutMeta& rollout,
                      const shard::PushOutcome& outcome) {
  observer_->OnPushed(session, rollout, outcome);
  if (outcome.result == shard::PushResult::kAccepted)
    ++stats_->rollouts;
  else
    FreeRefused(rollout.payload);
}

void Node::NoteGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) {
  observer_->OnGroupPushed(group, reply);
  for (size_t i = 0; i < group.rollouts.size() && i < reply.outcomes.size(); ++i) {
    if (reply.outcomes[i].result != shard::PushResult::kAccepted)
      FreeRefused(group.rollouts[i].payload);
  }
}

void Node::NoteRewarded(const shard::SetRewards& rewards, const shard::SetRewardsReply& reply) {
  for (size_t i = 0; i < reply.results.size(); ++i)
    observer_->OnRewarded(rewards.rewards[i], reply.results[i]);
}

void Node::NoteTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) {
  observer_->OnTrainerAnswer(command, reply);
  const auto* put = std::get_if<ledger::PutColumns>(&command);
  if (put == nullptr || std::get<ledger::StatusReply>(reply).status.ok()) return;
  for (const ledger::WrittenColumn& column : put->columns) FreeRefused(column.payload);
}

void Node::FreeRefused(PayloadId payload) {
  if (!payloads_.Free(payload)) return;
  observer_->OnPayloadDead(payload);
  if (store_ != nullptr) store_->Free(payload);
}

void Node::Die(const std::vector<PayloadId>& payloads, Payloads* store) {
  for (const PayloadId id : payloads) {
    if (!store->Free(id)) {
      alarm_(kPayloadsExist, absl::StrCat(store == &payloads_ ? "payload " : "content ", id.value,
                                          " is freed and was not there"));
    }
    if (store != &payloads_) continue;
    observer_->OnPayloadDead(id);
    if (store_ != nullptr) store_->Free(id);
  }
  if (waiting_.empty() || serving_) return;
  // After the event: the loop that frees must not be called from within.
  serving_ = true;
  queue_->After(0, [this] {
    serving_ = false;
    ServeWaiting();
  });
}

void Node::ServeWaiting() {
  while (!waiting_.empty() && payloads_.Fits(waiting_.front().bytes)) {
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    PushNow(next.session, std::move(next.rollouts), std::move(next.answer));
  }
}

// As server/budget_relief.cc does it.
void Node::FreeUpMemory() {
  node::ReliefLook look;
  look.used_bytes = payloads_.used();
  for (const Waiting& push : waiting_)
    look.waiting.push_back({.id = push.id, .attempt = push.rollouts.front().lease.attempt});
  look.AtLedger(ledger(), ledger_->loop->primary());
  for (const auto& host : shards_) {
    if (!host->away()) look.AtShard(host->state(), host->loop->primary());
  }
  if (!relief_.Stuck(queue_->now_ms(), kReliefAfterMs, node::FactsOf(look))) return;
  node::ReliefPlan plan = node::PlanRelief(look);
  size_t let_in = 0;
  while (let_in < plan.admit.size() && LetIn(plan.admit[let_in])) ++let_in;
  if (let_in > 0) {
    stats_->Count(Fault::kReliefAdmitted);
    ServeWaiting();
  }
  if (plan.DropsAfter(let_in)) DropFirst(std::move(plan.drops), std::move(look.wanted));
}

bool Node::LetIn(uint64_t id) {
  const auto found = std::ranges::find(waiting_, id, &Waiting::id);
  if (found == waiting_.end() || !payloads_.FitsReserve(found->bytes)) return false;
  Waiting next = std::move(*found);
  waiting_.erase(found);
  PushNow(next.session, std::move(next.rollouts), std::move(next.answer));
  return true;
}

void Node::DropFirst(std::vector<node::DropTarget> targets, std::vector<SourceId> wanted) {
  if (targets.empty()) return;
  const node::DropTarget target = targets.front();
  targets.erase(targets.begin());
  shard::DropForBudget drop;
  if (target.only_others) drop.spared = wanted;
  AskShard<shard::CountReply>(target.shard, std::move(drop),
                              [this, targets, wanted](const shard::CountReply& reply) {
                                if (reply.count > 0) return stats_->Count(Fault::kBudgetDrop);
                                DropFirst(targets, wanted);
                              });
}

void Node::Between(std::function<void()> deliver) {
  if (!faults_ || !options_.peer_faults) return queue_->After(1, std::move(deliver));
  if (dice_->Chance(options_.loss)) return stats_->Count(Fault::kPeerLost);
  if (dice_->Chance(options_.repeat)) {
    stats_->Count(Fault::kPeerRepeated);
    queue_->After(dice_->Between(1, options_.delay_ms_max), deliver);
  }
  queue_->After(dice_->Between(1, options_.delay_ms_max), std::move(deliver));
}

void Node::SendSummaries() {
  for (auto& shard : shards_) {
    if (shard->away()) continue;
    queue_->After(1, [this, summary = shard->loop->primary().Summary()] {
      ledger_->loop->OnSummary(queue_->now_ms(), summary);
    });
  }
}

void Node::Maintain() {
  SomeLeave();
  TroubleSomeDisk();
  LookAtLogs();
  FreeUpMemory();
  ledger::Primary& ledger = ledger_->loop->primary();
  ledger.SetPayloadBytesMax(options_.payload_bytes_max);
  for (auto& shard : shards_) {
    if (shard->away()) continue;
    shard->loop->primary().SetMemory(payloads_.FreeBytes() / shards(), 10'000);
    shard->loop->primary().HoldBack(ledger.HeldBack(payloads_.FreeBytes()));
    shard->loop->Tick(queue_->now_ms());
    if (options_.peer_faults) shard->loop->Resend();
  }
  ledger_->loop->Tick(queue_->now_ms());
  if (options_.peer_faults) ledger_->loop->Resend();
  if (options_.peer_faults) SendSummaries();
  Arm();
}

void Node::Arm() {
  uint64_t next = ledger_->loop->primary().NextTick();
  for (auto& shard : shards_) {
    if (!shard->away()) next = std::min(next, shard->loop->primary().NextTick());
  }
  if (next >= armed_ms_) return;
  armed_ms_ = next;
  const uint64_t now = queue_->now_ms();
  queue_->After(next > now ? next - now : 0, [this, next] {
    if (armed_ms_ != next) return;
    armed_ms_ = UINT64_MAX;
    for (auto& shard : shards_) {
      if (!shard->away()) shard->loop->Tick(queue_->now_ms());
    }
    ledger_->loop->Tick(queue_->now_ms());
    Arm();
  });
}

std::string Node::CompareReplicas() const {
  for (const auto& shard : shards_) {
    std::string different = shard->Compare();
    if (!different.empty()) return different;
  }
  return ledger_->Compare();
}

}  // namespace forebay::simulation
