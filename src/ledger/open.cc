// Opening a step, and planning it anew.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/check_spec.h"
#include "ledger/limits.h"
#include "ledger/plan.h"
#include "ledger/state.h"

namespace forebay::ledger {

absl::Status State::CheckSpec(const StepSpec& spec) const {
  FOREBAY_RETURN_IF_ERROR(CheckPacking(spec));
  FOREBAY_RETURN_IF_ERROR(CheckSelection(spec));
  if (spec.mesh.dp != mesh_.dp) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh.dp: ", spec.mesh.dp, ", but the trainer attached with ", mesh_.dp));
  }
  for (SourceId id : spec.sources) {
    const Source* known = source(id);
    if (known == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("sources: ", id.value, " is unknown; there are ", sources_.size()));
    }
    if (known->settings.purpose != codec::Purpose::kTrain) {
      return absl::InvalidArgumentError(absl::StrCat("sources: ", known->settings.name,
                                                     " is for evaluation, not a train source"));
    }
  }
  return absl::OkStatus();
}

absl::Status State::CheckOne(const OpenStep& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckGeneration(c.generation));
  FOREBAY_RETURN_IF_ERROR(CheckSpec(c.spec));
  FOREBAY_RETURN_IF_ERROR(CheckChannels());
  if (c.step < next_step_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", c.step.value, " is committed; the next to commit is ", next_step_.value));
  }
  const Step* held = step(c.step);
  if (held != nullptr && held->live()) {
    const StepSpec spec = Normalized(c.spec);
    if (spec == held->spec) return absl::OkStatus();
    if (c.replan || options_.mutations.replan_in_place) return CheckReplan(*held, spec);
    std::optional<std::string> difference = SelectionDifference(spec, held->spec);
    if (!difference) difference = PackingDifference(spec, held->spec);
    return absl::FailedPreconditionError(
        absl::StrCat(*difference, ", as step ", c.step.value,
                     " was opened; ask for a replan, or abort the step"));
  }
  FOREBAY_RETURN_IF_ERROR(CheckOpenSteps(c.step, kOpenStepsMax));
  if (c.step > next_to_open()) {
    return absl::FailedPreconditionError(absl::StrCat("step: ", c.step.value, ", but step ",
                                                      next_to_open().value, " is not open yet"));
  }
  return absl::OkStatus();
}

absl::Status State::CheckOpenSteps(StepId step, uint32_t most) const {
  const uint64_t last = next_step_.value + most - 1;
  if (step.value <= last) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("step: ", step.value, ", at most ", last, ": ",
                                                    most,
                                                    " steps (open_steps) from the next to commit"));
}

absl::Status State::CheckReplan(const Step& step, const StepSpec& spec) const {
  if (spec.mini_batches != step.spec.mini_batches && !LastLive(step.step)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "mini_batches: ", spec.mini_batches, ", not ", step.spec.mini_batches, ": step ",
        step.step.value + 1, " is open and trains on the version that they make"));
  }
  if (step.state != StepState::kSealed) return absl::OkStatus();
  if (const auto difference = SelectionDifference(spec, step.spec)) {
    return absl::FailedPreconditionError(absl::StrCat(
        *difference, ": a replan of a sealed step keeps its groups; abort the step instead"));
  }
  if (spec.custom_advantages != step.spec.custom_advantages) {
    return absl::FailedPreconditionError(
        "custom_advantages: a replan of a sealed step keeps its advantages; abort the step "
        "instead");
  }
  return absl::OkStatus();
}

absl::Status State::Run(const OpenStep& c, Tag tag, Effects* effects) {
  const StepSpec spec = Normalized(c.spec);
  Step* held = FindStep(c.step);
  if (held == nullptr || !held->live()) {
    Begin(c, spec);
    effects->steps_changed.push_back(c.step);
  } else if (!(spec == held->spec)) {
    FOREBAY_RETURN_IF_ERROR(Replan(*held, c.generation, spec, effects));
  }
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

void State::Begin(const OpenStep& c, const StepSpec& spec) {
  Step& opened = steps_[c.step];
  opened.step = c.step;
  opened.state = StepState::kOpen;
  // A number that was aborted keeps rising, so that what belonged to the aborted plan stays fenced.
  opened.revision = Revision(std::max(opened.revision, fenced_revision_).value + 1);
  newest_revision_ = std::max(newest_revision_, opened.revision);
  opened.generation = c.generation;
  opened.spec = spec;
  opened.failure.clear();
  const Step* before = step(StepId(c.step.value - 1));
  opened.train_version = c.step == next_step_ ? committed_version_ : before->next_version;
  opened.next_version = opened.train_version;
  opened.next_version.number += spec.mini_batches;
  ++counters_.steps_opened;
}

absl::Status State::Replan(Step& step, Generation generation, const StepSpec& spec,
                           Effects* effects) {
  if (step.state == StepState::kSealed) {
    absl::StatusOr<PackedStep> packed = PackStep(step, spec);
    if (!packed.ok()) return packed.status();
    DropWritten(step, effects);
    step.mini_batches = std::move(packed->mini_batches);
    step.filler_micro_batches = packed->filler_micro_batches;
  }
  const bool other_groups = SelectionDifference(spec, step.spec).has_value();
  step.spec = spec;
  step.generation = generation;
  if (!options_.mutations.replan_in_place) step.revision = Revision(step.revision.value + 1);
  newest_revision_ = std::max(newest_revision_, step.revision);
  step.next_version = step.train_version;
  step.next_version.number += spec.mini_batches;
  ++counters_.steps_replanned;
  effects->steps_changed.push_back(step.step);
  if (other_groups) {
    // What was reserved for other wishes goes back, and is reserved again if it fits the new ones.
    step.state = StepState::kOpen;
    SendVersionState(effects);  // before the shards judge what comes back
    Return(step, effects);
    return absl::OkStatus();
  }
  for (ShardId shard : ShardsOf(step)) {
    Send(shard, codec::StepReplanned{step.step, step.revision}, effects);
  }
  if (step.state == StepState::kSealed) {
    Summarize(step);
  } else if (step.state == StepState::kReserved && !spec.custom_advantages) {
    NormalizeAdvantages(step);
    Seal(step, effects);
  }
  return absl::OkStatus();
}

}  // namespace forebay::ledger
