// Checkpoints, and the payloads of committed steps that stay until one covers them.
//
// The retained steps are the newest committed ones, without a gap: a rewind serves all that it
// takes back again, or none.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {

absl::Status State::CheckOne(const CheckpointStep& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  if (c.step == StepId()) return absl::InvalidArgumentError("step: 0, steps count from 1");
  if (c.step >= next_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " is not committed; the last one that is: ", next_step_.value - 1));
  }
  if (c.step > checkpoint_.step && step(c.step) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " was committed more than ", kCommittedStepsKept, " steps ago"));
  }
  return CheckChannels();
}

absl::Status State::Run(const CheckpointStep& c, Tag tag, Effects* effects) {
  if (c.step > checkpoint_.step) {
    checkpoint_ = {c.step, step(c.step)->next_version};
    for (auto& [id, step] : steps_) {
      if (id <= c.step && step.retained) ReleasePlan(step);
    }
    SetKeep(c.keep);
    SendToAll(codec::StepsCovered{c.step, keep_}, effects);
  }
  Answer(tag, CheckpointReply{absl::OkStatus(), checkpoint_.step}, effects);
  return absl::OkStatus();
}

void State::SetKeep(const codec::KeepRule& rule) {
  keep_ = rule;
  keep_.bytes_max /= options_.shards;
}

uint64_t State::retained_bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, step] : steps_) sum += step.retained ? step.payload_bytes : 0;
  return sum;
}

uint64_t State::retained_steps() const {
  uint64_t count = 0;
  for (const auto& [id, step] : steps_) count += step.retained;
  return count;
}

uint64_t State::retained_rollouts() const {
  uint64_t sum = 0;
  for (const auto& [id, step] : steps_) sum += step.retained ? step.rollouts.size() : 0;
  return sum;
}

void State::ReleasePlan(Step& step) {
  step.retained = false;
  step.DropPlan();
}

void State::Release(StepId last, Effects* effects) {
  for (auto& [id, step] : steps_) {
    if (id > last || !step.retained) continue;
    ReleasePlan(step);
    ++counters_.steps_released;
  }
  SendToAll(codec::StepsReleased{last, keep_}, effects);
}

bool State::MakeRoom(const Step& step, uint64_t bytes_max, Effects* effects) {
  const bool fits = step.payload_bytes <= bytes_max && bytes_max > 0 &&
                    step.rollouts.size() <= kRetainedRolloutsMax;
  uint64_t bytes = retained_bytes() + step.payload_bytes;
  uint64_t rollouts = retained_rollouts() + step.rollouts.size();
  StepId last;
  for (const auto& [id, older] : steps_) {
    if (!older.retained) continue;
    const bool forgotten_next = id.value + kCommittedStepsKept <= step.step.value;
    if (fits && !forgotten_next && bytes <= bytes_max && rollouts <= kRetainedRolloutsMax) break;
    bytes -= older.payload_bytes;
    rollouts -= older.rollouts.size();
    last = id;
  }
  if (last != StepId()) Release(last, effects);
  if (!fits && bytes_max > 0) ++counters_.steps_released;
  return fits;
}

absl::Status State::CheckOne(const TrimRetained&) const { return CheckChannels(); }

absl::Status State::Run(const TrimRetained& c, Tag tag, Effects* effects) {
  uint64_t bytes = retained_bytes();
  StepId last;
  for (const auto& [id, step] : steps_) {
    if (bytes <= c.bytes_max) break;
    if (!step.retained) continue;
    bytes -= step.payload_bytes;
    last = id;
  }
  SetKeep(c.keep);
  // Shards that have no payloads to release trim what they keep.
  Release(last, effects);
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

}  // namespace forebay::ledger
