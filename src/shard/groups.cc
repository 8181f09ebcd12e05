// The life of a group: leases that end, completion, filters, drops, closing.
//
// A group is open, then ready, reserved by a step, trained if its payloads stay for a rewind, and
// closed; it may be closed from each of these.
// `LeaveList` takes it out of the list of its state; the state changes when it enters the next
// list.
#include <algorithm>

#include "base/check.h"
#include "shard/limits.h"
#include "shard/machine.h"
#include "shard/reply.h"

namespace forebay::shard {

using rollout::AttemptRecord;
using rollout::AttemptState;
using rollout::CloseReason;
using rollout::GroupRecord;
using rollout::GroupState;
using rollout::RolloutRecord;

namespace {

// Rollouts without which a group is of no use: alone, one has nothing to be compared with.
uint32_t LeastOf(codec::AdvantageKind kind) { return kind == codec::AdvantageKind::kNone ? 1 : 2; }

DropReason ReasonOf(rollout::FilterResult filter) {
  switch (filter) {
    case rollout::FilterResult::kSingle:
      return DropReason::kFilteredSingle;
    case rollout::FilterResult::kLength:
      return DropReason::kFilteredLength;
    case rollout::FilterResult::kEqual:
    case rollout::FilterResult::kKeep:
      break;
  }
  return DropReason::kFilteredEqual;
}

void LeaveStep(GroupTable& groups, uint32_t slot, std::vector<StepHold>* holds) {
  StepHold* hold = FindHold(holds, groups[slot].step);
  hold->groups.Remove(groups, slot);
  if (hold->groups.empty()) holds->erase(holds->begin() + (hold - holds->data()));
}

}  // namespace

void Machine::EndLease(uint32_t slot) {
  const AttemptRecord& attempt = tables_.attempt(slot);
  if (attempt.state != AttemptState::kLeased) return;
  --sessions_[attempt.session].leases;
  SourceOf(attempt.group).leased.Remove(attempt.version);
}

void Machine::Requeue(uint32_t slot) {
  const uint32_t group = tables_.attempt(slot).group;
  EndLease(slot);
  if (tables_.attempt(slot).state == AttemptState::kDone) ++SourceOf(group).unfinished;
  tables_.MakePending(slot);
  QueueOf(group).PushRetry(tables_.groups(), group);
}

void Machine::FailAttempt(uint32_t slot, bool in_rounds, Effects* effects) {
  AttemptRecord& attempt = tables_.attempt(slot);
  const uint32_t group_slot = attempt.group;
  GroupRecord& group = tables_.group(group_slot);
  const TaskId task = group.task;
  const uint32_t max_failures = SettingsOf(task.source()).max_failures;
  if (attempt.session != kNone) ++sessions_[attempt.session].failed;
  attempt.failures = static_cast<uint8_t>(std::min(attempt.failures + 1, 255));
  Requeue(slot);
  if (group.eval != kNone) {
    if (max_failures == 0 || attempt.failures < std::min(max_failures, 255u)) return;
    ++evals_[group.eval].failed;
    if (attempt.partial != PayloadId()) FreePayload(attempt.partial, 0, effects);
    attempt.partial = PayloadId();
    tables_.Settle(slot, AttemptState::kClosed);
    --SourceOf(group_slot).unfinished;
    if (group.pending == 0) QueueOf(group_slot).Remove(tables_.groups(), group_slot);
    return FinishIfComplete(group_slot, effects);
  }
  const bool counts = !in_rounds || attempt.failures > group.failure_rounds;
  group.failure_rounds = std::max(group.failure_rounds, attempt.failures);
  if (!counts || !curriculum_.CountFailure(task, max_failures)) return;
  ++sources_[task.source().value].counters.tasks_quarantined;
  DropQuarantined(task.source(), effects);
}

// Few attempts tell whether a task is solved or hopeless, and so whether the others would teach
// anything.
bool Machine::ScreenedOut(uint32_t slot) {
  const GroupRecord& group = tables_.group(slot);
  const bool all_in =
      group.leased == 0 && group.unrewarded == 0 && group.pending == group.held_back();
  if (group.screening == 0 || !all_in) return false;
  rewards_.clear();
  tables_.ForEachRollout(slot, [&](uint32_t r) { rewards_.push_back(tables_.rollout(r).reward); });
  const rollout::Baseline baseline = rollout::MeasureBaseline(rewards_);
  if (rollout::FilterGroup(SettingsOfGroup(slot), baseline, 0) == rollout::FilterResult::kEqual) {
    ++SourceOf(slot).counters.groups_screened_out;
    return true;
  }
  EndScreening(slot);
  QueueOf(slot).PushFresh(tables_.groups(), slot);
  return false;
}

void Machine::EndScreening(uint32_t slot) {
  GroupRecord& group = tables_.group(slot);
  SourceOf(slot).held_back -= group.held_back();
  group.screening = 0;
}

void Machine::FinishIfComplete(uint32_t slot, Effects* effects) {
  const GroupRecord& group = tables_.group(slot);
  if (group.state != GroupState::kOpen) return;
  if (ScreenedOut(slot)) return Complete(slot, effects);
  const bool no_more = group.pending == 0 && group.leased == 0 && group.unrewarded == 0;
  if (group.eval != kNone) {
    if (no_more) CompleteEval(slot, effects);
    return;
  }
  const codec::SourceSettings& settings = SettingsOfGroup(slot);
  uint32_t needed = std::clamp<uint32_t>(settings.complete_at, 1, group.attempts);
  if (group.flags & GroupRecord::kPastDeadline) {
    needed = std::min(needed, std::max(settings.complete_minimum, 1u));
  }
  // With attempts that were dropped for good, what is there has to do.
  if (no_more) needed = std::min(needed, LeastOf(settings.advantage));
  if (group.rewarded >= needed) {
    Complete(slot, effects);
  } else if (no_more) {
    DropGroup(slot, DropReason::kShort, CloseReason::kComplete, effects);
  }
}

void Machine::Complete(uint32_t slot, Effects* effects) {
  GroupRecord& group = tables_.group(slot);
  const codec::SourceSettings& settings = SettingsOfGroup(slot);
  SourceState& source = SourceOf(slot);
  curriculum::GroupStats stats;
  uint32_t longest = 0;
  rewards_.clear();
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    if ((rollout.flags & RolloutRecord::kRewarded) == 0) {
      return DropRollout(r, DropReason::kLate, effects);
    }
    rewards_.push_back(rollout.reward);
    stats.passes += std::clamp(rollout.reward, 0.0, 1.0);
    stats.tokens_sum += rollout.tokens;
    stats.duration_ms_sum += rollout.duration_ms;
    stats.version = std::max(stats.version, rollout.version.number);
    longest = std::max(longest, rollout.tokens);
    source.counters.reward_sum += rollout.reward;
  });
  stats.rollouts = group.rewarded;
  source.counters.rewarded += group.rewarded;
  ++source.counters.groups_complete;
  const rollout::Baseline baseline = rollout::MeasureBaseline(rewards_);
  const rollout::FilterResult filter = rollout::FilterGroup(settings, baseline, longest);
  stats.filtered = filter != rollout::FilterResult::kKeep;
  history_.Note(group.task, curriculum_);
  curriculum_.GroupFinished(group.task, stats);
  if (group.attempts > group.rewarded) {
    curriculum_.CountLost(group.task.source(), group.attempts - group.rewarded);
  }
  LeaveList(slot);
  CloseAttempts(slot, effects);
  if (stats.filtered) {
    ++source.counters.groups_filtered;
    tables_.ForEachRollout(slot, [&](uint32_t r) { DropRollout(r, ReasonOf(filter), effects); });
    return CloseGroup(slot, CloseReason::kComplete, effects);
  }
  group.advantage = settings.advantage;
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    RolloutRecord& rollout = tables_.rollout(r);
    rollout.advantage = rollout::Advantage(settings.advantage, rollout.reward, baseline);
  });
  source.outstanding -= group.credits - group.rewarded;
  group.credits = group.rewarded;
  group.sequence = ++sequence_;
  MakeReady(slot);
  Cull(slot, settings.max_lag, train_floor_, effects);
}

void Machine::CompleteEval(uint32_t slot, Effects* effects) {
  GroupRecord& group = tables_.group(slot);
  EvalRun& run = evals_[group.eval];
  SourceState& source = SourceOf(slot);
  curriculum::GroupStats stats;
  rewards_.clear();
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    rewards_.push_back(rollout.reward);
    stats.passes += std::clamp(rollout.reward, 0.0, 1.0);
    stats.tokens_sum += rollout.tokens;
    stats.duration_ms_sum += rollout.duration_ms;
    source.counters.reward_sum += rollout.reward;
    run.tokens_sum += rollout.tokens;
    --source.counters.held;
    ++source.counters.evaluated;
    tables_.RemoveRollout(r);
  });
  stats.rollouts = static_cast<uint32_t>(rewards_.size());
  stats.version = run.version.number;
  source.counters.rewarded += stats.rollouts;
  ++source.counters.groups_complete;
  if (stats.rollouts > 0) {
    curriculum_.GroupFinished(group.task, stats);
  } else {
    curriculum_.GroupDropped(group.task);
  }
  AddTaskResult(rewards_, &run);
  --run.open_groups;
  EndEvalIfDone(&run);
  LeaveList(slot);
  CloseGroup(slot, CloseReason::kComplete, effects);
}

void Machine::EndEvalIfDone(EvalRun* run) {
  run->done = run->next_task == run->end_task && run->open_groups == 0;
}

// The group's task was taken out of circulation: the run does without it.
void Machine::DropEvalGroup(uint32_t slot) {
  EvalRun& run = evals_[tables_.group(slot).eval];
  --run.tasks;
  --run.open_groups;
  EndEvalIfDone(&run);
}

void Machine::MakeReady(uint32_t slot) {
  GroupRecord& group = tables_.group(slot);
  const codec::SourceSettings& settings = SettingsOfGroup(slot);
  uint64_t tokens = 0;
  group.version = UINT32_MAX;
  SequenceMeta scratch;
  tables_.ForEachRollout(slot, [&](uint32_t r) {
    const RolloutRecord& rollout = tables_.rollout(r);
    tokens += rollout.tokens;
    const uint32_t version =
        tables_.IsPlain(r) ? rollout.version.number
                           : rollout::VersionBy(settings.lag_of, tables_.Sequences(r, &scratch), 0);
    group.version = std::min(group.version, version);
  });
  group.tokens = static_cast<uint32_t>(std::min<uint64_t>(tokens, UINT32_MAX));
  group.state = GroupState::kReady;
  SourceOf(slot).ready.Insert(tables_.groups(), slot);
}

void Machine::DropRollout(uint32_t r, DropReason reason, Effects* effects) {
  const RolloutRecord& rollout = tables_.rollout(r);
  const uint32_t slot = tables_.attempt(rollout.attempt).group;
  GroupRecord& group = tables_.group(slot);
  SourceState& source = SourceOf(slot);
  --(group.state == GroupState::kReserved ? source.counters.reserved : source.counters.held);
  ++source.counters.dropped[static_cast<size_t>(reason)];
  if (group.state != GroupState::kOpen) {
    --group.credits;
    --source.outstanding;
  }
  FreePayload(rollout.payload, rollout.payload_bytes, effects);
  tables_.RemoveRollout(r);
}

void Machine::DropGroup(uint32_t slot, DropReason reason, CloseReason close, Effects* effects) {
  GroupRecord& group = tables_.group(slot);
  const bool open = group.state == GroupState::kOpen;
  ++SourceOf(slot).counters.groups_dropped;
  LeaveList(slot);
  if (group.eval != kNone) DropEvalGroup(slot);
  if (open) curriculum_.GroupDropped(group.task);
  if (reason == DropReason::kRewound) curriculum_.Again(group.task);
  // What grew too old, or was ready for steps that do not come, does not lower the expected
  // survival: that would admit more, which would fare no better.
  const bool ready_in_vain =
      !open && (reason == DropReason::kShort || reason == DropReason::kBudget ||
                reason == DropReason::kOperator);
  const bool blameless = reason == DropReason::kStale || reason == DropReason::kRewound;
  if (!blameless && !ready_in_vain) {
    curriculum_.CountLost(group.task.source(), open ? group.attempts : group.held());
  }
  tables_.ForEachRollout(slot, [&](uint32_t r) { DropRollout(r, reason, effects); });
  CloseGroup(slot, close, effects);
}

void Machine::LeaveList(uint32_t slot) {
  const GroupRecord& group = tables_.group(slot);
  SourceState& source = SourceOf(slot);
  switch (group.state) {
    case GroupState::kOpen:
      return source.open.Remove(tables_.groups(), slot);
    case GroupState::kReady:
      return source.ready.Remove(tables_.groups(), slot);
    case GroupState::kReserved:
      --source.reserved_groups;
      return LeaveStep(tables_.groups(), slot, &holds_);
    case GroupState::kTrained:
      return LeaveStep(tables_.groups(), slot, &retained_);
    case GroupState::kClosed:
      return closed_.Remove(tables_.groups(), slot);
  }
}

void Machine::CloseAttempts(uint32_t slot, Effects* effects) {
  const GroupRecord& group = tables_.group(slot);
  QueueOf(slot).Remove(tables_.groups(), slot);
  EndScreening(slot);
  if (group.pending == 0 && group.leased == 0) return;
  SourceOf(slot).unfinished -= uint64_t{group.pending} + group.leased;
  tables_.ForEachAttempt(slot, [&](uint32_t a) {
    AttemptRecord& attempt = tables_.attempt(a);
    if (attempt.state != AttemptState::kPending && attempt.state != AttemptState::kLeased) return;
    EndLease(a);
    if (attempt.partial != PayloadId()) FreePayload(attempt.partial, 0, effects);
    attempt.partial = PayloadId();
    tables_.Settle(a, AttemptState::kClosed);
  });
}

void Machine::CloseGroup(uint32_t slot, CloseReason close, Effects* effects) {
  CloseAttempts(slot, effects);
  GroupRecord& group = tables_.group(slot);
  SourceOf(slot).outstanding -= group.credits;
  group.credits = 0;
  group.eval = kNone;
  group.state = GroupState::kClosed;
  group.close_reason = close;
  closed_.PushBack(tables_.groups(), slot);
  if (closed_.size() <= options_.closed_groups_max) return;
  const uint32_t oldest = closed_.head();
  closed_.Remove(tables_.groups(), oldest);
  tables_.RemoveGroup(oldest);
}

void Machine::DropQuarantined(SourceId source, Effects* effects) {
  uint32_t slot = sources_[source.value].open.head();
  while (slot != kNone) {
    const uint32_t next = rollout::OrderList::Next(tables_.groups(), slot);
    if (curriculum_.task(tables_.group(slot).task)->quarantined) {
      DropGroup(slot, DropReason::kFailed, CloseReason::kTaskRemoved, effects);
    }
    slot = next;
  }
}

}  // namespace forebay::shard
