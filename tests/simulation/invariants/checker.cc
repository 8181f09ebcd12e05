#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {

void Invariant::Violated(const std::string& what) { checker_->Fail(name_, what); }
const Node& Invariant::node() const { return checker_->node(); }
const HistoryOptions& Invariant::options() const { return checker_->options(); }

Checker::Checker(const HistoryOptions& options, Stats* stats) : options_(options), stats_(stats) {
  invariants_.push_back(MakeAccounting(this));
  invariants_.push_back(MakeOneLiveLease(this));
  invariants_.push_back(MakeStepCommittedOnce(this));
  invariants_.push_back(MakeNoStaleRollout(this));
  invariants_.push_back(MakeEqualPositionEqualHash(this));
  invariants_.push_back(MakeSegmentHasOneWriter(this));
  invariants_.push_back(MakePayloadsNamedByState(this));
  invariants_.push_back(MakeUnlinkedWhenDead(this));
  invariants_.push_back(MakeDamageNotServed(this));
  invariants_.push_back(MakeMemoryLimits(this));
}

void Checker::OnShardCommand(ShardId shard, const shard::Command& command) {
  Tell([&](Observer& o) { o.OnShardCommand(shard, command); });
}
void Checker::OnLedgerCommand(const ledger::Command& command) {
  Tell([&](Observer& o) { o.OnLedgerCommand(command); });
}
void Checker::OnAssigned(SessionId session, const shard::Assignment& assignment) {
  Tell([&](Observer& o) { o.OnAssigned(session, assignment); });
}
void Checker::OnPushed(SessionId session, const shard::RolloutMeta& meta,
                       const shard::PushOutcome& outcome) {
  using enum shard::PushResult;
  if (outcome.result == kLate || outcome.result == kLeaseLost) stats_->Count(Fault::kLatePush);
  if (outcome.result == kDuplicate) stats_->Count(Fault::kRepeatedPush);
  Tell([&](Observer& o) { o.OnPushed(session, meta, outcome); });
}
void Checker::OnGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) {
  Tell([&](Observer& o) { o.OnGroupPushed(group, reply); });
}
void Checker::OnRewarded(const shard::LateReward& reward, shard::PushResult result) {
  Tell([&](Observer& o) { o.OnRewarded(reward, result); });
}
void Checker::OnRenewed(SessionId session, const shard::LeaseRef& lease,
                        shard::LeaseAction action) {
  Tell([&](Observer& o) { o.OnRenewed(session, lease, action); });
}
void Checker::OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) {
  if (std::holds_alternative<ledger::CommitStep>(command)) {
    const auto& commit = std::get<ledger::CommitReply>(reply);
    if (commit.status.ok() && !commit.already_committed) ++stats_->steps;
  }
  if (const auto* rewind = std::get_if<ledger::Rewind>(&command)) {
    if (std::get<ledger::RewindReply>(reply).status.ok()) {
      stats_->Count(!rewinds_.insert(rewind->request_id).second ? Fault::kRewindRepeated
                    : rewind->replay                            ? Fault::kReplay
                                                                : Fault::kRewind);
    }
  }
  Tell([&](Observer& o) { o.OnTrainerAnswer(command, reply); });
}
void Checker::OnFetched(Generation generation, StepId step, Revision revision,
                        const ledger::MicroBatchRef& ref,
                        const absl::StatusOr<ledger::MicroBatchView>& view) {
  Tell([&](Observer& o) { o.OnFetched(generation, step, revision, ref, view); });
}
void Checker::OnPayloadLost(PayloadId payload) {
  Tell([&](Observer& o) { o.OnPayloadLost(payload); });
}
void Checker::OnPayloadDead(PayloadId payload) {
  Tell([&](Observer& o) { o.OnPayloadDead(payload); });
}
void Checker::OnReserved(ShardId shard, const codec::Reserved& reserved) {
  Tell([&](Observer& o) { o.OnReserved(shard, reserved); });
}
void Checker::OnStepChanged(const ledger::Step& step) {
  Tell([&](Observer& o) { o.OnStepChanged(step); });
}
void Checker::OnStoreAccess(uint64_t process, const io::MemoryAccess& access) {
  if (access.operation == io::MemoryOperation::kUnlink) ++stats_->unlinked;
  Tell([&](Observer& o) { o.OnStoreAccess(process, access); });
}
void Checker::OnPayloadStored(PayloadId payload, const std::vector<std::string>& paths) {
  Tell([&](Observer& o) { o.OnPayloadStored(payload, paths); });
}
void Checker::OnScan() {
  ++stats_->scans;
  stats_->faults[static_cast<size_t>(Fault::kReleased)] = node_->ledger().counters().steps_released;
  uint64_t& kept = stats_->faults[static_cast<size_t>(Fault::kKept)] = 0;
  for (uint32_t s = 0; s < node_->shards(); ++s) {
    kept += node_->shard(ShardId(static_cast<uint8_t>(s))).kept_rollouts();
  }
  for (const auto& invariant : invariants_) invariant->OnScan();
}

}  // namespace forebay::simulation
