// The ends of a step: commit and abort; and the advantages that a trainer may bring.
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/plan.h"
#include "ledger/state.h"

namespace forebay::ledger {

absl::Status State::CheckOne(const CommitStep& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  if (c.step >= next_step_) {
    if (c.step > next_step_) {
      return absl::FailedPreconditionError(
          absl::StrCat("step: ", c.step.value, ", the next to commit is ", next_step_.value));
    }
    return CheckSealed(c.step, c.revision);
  }
  const Step* committed = step(c.step);
  if (committed == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " was committed more than ", kCommittedStepsKept, " steps ago"));
  }
  if (committed->revision != c.revision) {
    return absl::AbortedError(absl::StrCat("revision: ", c.revision.value, ", step ", c.step.value,
                                           " was committed as revision ",
                                           committed->revision.value));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const CommitStep& c, Tag tag, Effects* effects) {
  Step& step = *FindStep(c.step);
  if (c.step < next_step_) {
    Answer(tag, CommitReply{absl::OkStatus(), true, step.next_version}, effects);
    return absl::OkStatus();
  }
  step.payload_bytes = 0;
  for (const HeldRollout& rollout : step.rollouts) step.payload_bytes += rollout.payload_bytes;
  SetKeep(c.keep);
  step.retained = MakeRoom(step, c.retention_bytes_max, effects);
  step.served_again = false;
  SendToAll(codec::StepCommitted{step.step, step.revision, step.next_version, step.retained, keep_},
            effects);
  ++counters_.steps_committed;
  counters_.groups_committed += step.totals.groups;
  counters_.rollouts_committed += step.totals.rollouts;
  counters_.tokens_committed += step.totals.tokens;
  counters_.loss_tokens_committed += step.totals.loss_tokens;
  counters_.filler_micro_batches += step.filler_micro_batches;
  rollouts_since_published_ += step.totals.rollouts;
  if (measured_rollouts_ == 0) measured_rollouts_ = step.totals.rollouts;
  DriftCommitted(step, c.drift);
  DropWritten(step, effects);
  step.state = StepState::kCommitted;
  step.generation = c.generation;
  if (!step.retained) step.DropPlan();
  committed_version_ = step.next_version;
  next_step_ = StepId(step.step.value + 1);
  effects->steps_changed.push_back(step.step);
  Answer(tag, CommitReply{absl::OkStatus(), false, step.next_version}, effects);
  if (next_step_.value > kCommittedStepsKept) {
    steps_.erase(steps_.begin(),
                 steps_.lower_bound(StepId(next_step_.value - kCommittedStepsKept)));
  }
  return absl::OkStatus();
}

absl::Status State::CheckOne(const AbortStep& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  if (c.reason.size() > kReasonBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("reason: ", c.reason.size(), " bytes, at most ", kReasonBytesMax));
  }
  if (c.step < next_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " is committed; the next to commit is ", next_step_.value));
  }
  if (step(c.step) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " is not open; the next to open is ", next_to_open().value));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const AbortStep& c, Tag tag, Effects* effects) {
  if (step(c.step)->live()) {
    Abort(c.step, c.reason.empty() ? "by the trainer" : c.reason, effects);
  }
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

void State::Abort(StepId first, const std::string& why, Effects* effects) {
  std::vector<std::pair<ShardId, StepId>> returned;
  for (auto it = steps_.find(first); it != steps_.end() && it->second.live(); ++it) {
    Step& step = it->second;
    for (ShardId shard : ShardsOf(step)) returned.emplace_back(shard, step.step);
    counters_.groups_returned += step.groups.size();
    ++counters_.steps_aborted;
    step.Clear(&effects->dead_payloads);
    step.state = StepState::kAborted;
    step.failure = step.step == first ? why : absl::StrCat("step ", first.value, ": ", why);
    effects->steps_changed.push_back(step.step);
  }
  drift_.reports.Drop(first);
  // The shards must know that the older version trains again before they judge the groups that come
  // back.
  SendVersionState(effects);
  for (const auto& [shard, step] : returned) Send(shard, codec::Unreserve{step, {}}, effects);
}

absl::Status State::CheckOne(const PutAdvantages& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  FOREBAY_RETURN_IF_ERROR(CheckRevision(c.step, c.revision));
  const Step& held = *step(c.step);
  if (!held.spec.custom_advantages) {
    return absl::FailedPreconditionError(
        absl::StrCat("step: ", c.step.value, " was opened without custom_advantages"));
  }
  if (held.state == StepState::kOpen) {
    return absl::FailedPreconditionError(
        absl::StrCat("step: ", c.step.value, " does not have all its groups yet"));
  }
  if (c.advantages.size() != held.rollouts.size()) {
    return absl::InvalidArgumentError(absl::StrCat("advantages: ", c.advantages.size(),
                                                   ", one for each of ", held.rollouts.size(),
                                                   " rollouts"));
  }
  for (size_t i = 0; i < c.advantages.size(); ++i) {
    if (!std::isfinite(c.advantages[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("advantages[", i, "]: ", c.advantages[i], ", must be finite"));
    }
    if (held.state == StepState::kSealed && held.rollouts[i].advantage != c.advantages[i]) {
      return absl::FailedPreconditionError(
          absl::StrCat("advantages[", i, "]: ", c.advantages[i], ", but step ", c.step.value,
                       " is sealed with ", held.rollouts[i].advantage));
    }
  }
  return absl::OkStatus();
}

absl::Status State::Run(const PutAdvantages& c, Tag tag, Effects* effects) {
  Step& held = *FindStep(c.step);
  if (held.state == StepState::kReserved) {
    for (size_t i = 0; i < c.advantages.size(); ++i) held.rollouts[i].advantage = c.advantages[i];
    Seal(held, effects);
  }
  Answer(tag,
         StatusReply{held.live() ? absl::OkStatus()
                                 : absl::FailedPreconditionError(absl::StrCat(
                                       "step ", c.step.value, " was aborted: ", held.failure))},
         effects);
  return absl::OkStatus();
}

}  // namespace forebay::ledger
