// What the ledger says of committed steps: their payloads may go, or they are taken back.
//
// Where each rollout stands stays true through a rewind. What a step that is served again trained
// is reserved by it as before. All else that was trained since, or is there from the old branch,
// counts as dropped: one by one as long as it is here, and by the sums of its step when it is
// closed.
#include <algorithm>

#include "shard/machine.h"

namespace forebay::shard {

using rollout::CloseReason;
using rollout::GroupRecord;
using rollout::GroupState;
using rollout::RolloutRecord;

// False: it is for the caller to let its bytes go. Else they are named here from now on.
bool Machine::KeepForPeople(uint32_t r, const codec::KeepRule& keep, Effects* effects) {
  const RolloutRecord& rollout = tables_.rollout(r);
  if (rollout.payload == PayloadId() || (rollout.flags & RolloutRecord::kDamaged)) return false;
  const uint32_t slot = tables_.attempt(rollout.attempt).group;
  const GroupRecord& group = tables_.group(slot);
  const KeptRecord record{.rollout = tables_.IdOfRollout(r),
                          .group = tables_.IdOfGroup(slot),
                          .attempt = tables_.IdOfAttempt(rollout.attempt),
                          .task = group.task,
                          .step = group.step,
                          .payload = rollout.payload,
                          .payload_bytes = rollout.payload_bytes,
                          .reward = rollout.reward,
                          .advantage = rollout.advantage,
                          .tokens = rollout.tokens,
                          .loss_tokens = rollout.loss_tokens,
                          .version = rollout.version,
                          .status = rollout.status,
                          .rewarded = (rollout.flags & RolloutRecord::kRewarded) != 0};
  if (!Takes(keep, options_.run_seed, record)) return false;
  kept_.Add(record, &effects->dead_payloads);
  return true;
}

void Machine::ReleaseGroup(uint32_t slot, const codec::KeepRule& keep, Effects* effects) {
  const GroupRecord& group = tables_.group(slot);
  TrainedSum sum{group.task.source(), 1, group.held(), 0};
  LeaveList(slot);
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    sum.tokens += rollout.tokens;
    retained_bytes_ -= rollout.payload_bytes;
    const bool kept = KeepForPeople(r, keep, effects);
    if (!kept && rollout.payload != PayloadId()) effects->dead_payloads.push_back(rollout.payload);
    tables_.RemoveRollout(r);
  });
  history_.AddTrained(group.step, sum);
  CloseGroup(slot, CloseReason::kComplete, effects);
}

void Machine::Run(const codec::StepsReleased& m, Effects* effects) {
  while (!retained_.empty() && retained_.front().step <= m.step) {
    for (uint32_t slot : GroupsOf(tables_.groups(), retained_.front())) {
      ReleaseGroup(slot, m.keep, effects);
    }
  }
  kept_.Trim(m.keep, &effects->dead_payloads);
}

void Machine::Run(const codec::StepsCovered& m, Effects* effects) {
  Run(codec::StepsReleased{m.step, m.keep}, effects);
  history_.Cover(m.step);
}

void Machine::TakeBackGroup(uint32_t slot, Revision revision) {
  GroupRecord& group = tables_.group(slot);
  SourceState& source = SourceOf(slot);
  LeaveList(slot);
  uint64_t tokens = 0;
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    tokens += rollout.tokens;
    retained_bytes_ -= rollout.payload_bytes;
    payload_bytes_ += rollout.payload_bytes;
  });
  source.counters.TakeBackTrained(1, group.held(), tokens);
  source.counters.reserved += group.held();
  group.state = GroupState::kReserved;
  group.credits = group.held();
  source.outstanding += group.credits;
  ++source.reserved_groups;
  HoldOf(&holds_, group.step, revision).groups.PushBack(tables_.groups(), slot);
}

void Machine::DropHolds(StepId served_again, Effects* effects) {
  while (!holds_.empty() && holds_.back().step > served_again) {
    for (uint32_t slot : GroupsOf(tables_.groups(), holds_.back())) {
      DropGroup(slot, DropReason::kRewound, CloseReason::kRewound, effects);
    }
  }
}

void Machine::Run(const codec::Rewound& m, Effects* effects) {
  while (!retained_.empty() && retained_.back().step > m.step) {
    const Revision revision = retained_.back().revision;
    for (uint32_t slot : GroupsOf(tables_.groups(), retained_.back())) {
      TakeBackGroup(slot, revision);
    }
  }
  DropHolds(m.served_again, effects);
  versions_ = m.versions;
  ChangeBranch(effects);
  train_floor_ = m.version.number;
  ReleaseCredits();
  std::vector<TaskId> kept;
  for (const StepHold& hold : holds_) {
    for (uint32_t slot : GroupsOf(tables_.groups(), hold)) kept.push_back(tables_.group(slot).task);
  }
  std::ranges::sort(kept);
  const History::Undone undone = history_.GoBack(m.step, &curriculum_);
  for (TaskId task : undone.tasks) {
    if (!std::ranges::binary_search(kept, task)) curriculum_.Again(task);
  }
  for (const TrainedSum& sum : undone.trained) {
    SourceCounters& counters = sources_[sum.source.value].counters;
    counters.TakeBackTrained(sum.groups, sum.rollouts, sum.tokens);
    counters.dropped[static_cast<size_t>(DropReason::kRewound)] += sum.rollouts;
    counters.groups_dropped += sum.groups;
  }
}

}  // namespace forebay::shard
