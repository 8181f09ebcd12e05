#include "ledger/state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"

namespace forebay::ledger {

State::State(const Options& options) : options_(options), channels_(options.shards) {
  FOREBAY_CHECK(options.shards >= 1 && options.shards <= kShardsMax);
  FOREBAY_CHECK(options.open_steps_max >= 1 && options.open_steps_max <= kOpenStepsMax);
  announcements_.push_back(published_);
  versions_ = CurrentVersionState();
  for (ShardChannel& channel : channels_) {
    channel.outbox.Add(codec::Encode(codec::ToShard(versions_)));
  }
}

const Step* State::step(StepId step) const {
  const auto it = steps_.find(step);
  return it == steps_.end() ? nullptr : &it->second;
}

Step* State::FindStep(StepId step) {
  const auto it = steps_.find(step);
  return it == steps_.end() ? nullptr : &it->second;
}

std::vector<const Step*> State::StepsNewestFirst() const {
  std::vector<const Step*> result;
  for (auto it = steps_.rbegin(); it != steps_.rend(); ++it) result.push_back(&it->second);
  return result;
}

StepId State::next_to_open() const {
  StepId next = next_step_;
  for (auto it = steps_.find(next); it != steps_.end() && it->second.live(); ++it) {
    next = StepId(it->first.value + 1);
  }
  return next;
}

bool State::LastLive(StepId step) const { return next_to_open().value == step.value + 1; }

absl::Status State::CheckRevision(StepId id, Revision revision) const {
  const Step* held = step(id);
  if (held == nullptr || !held->live()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "step: ", id.value, " is not open",
        held != nullptr && held->state == StepState::kAborted ? ", it was aborted: " : "",
        held != nullptr ? held->failure : "", "; the next to commit is ", next_step_.value));
  }
  if (held->revision != revision) {
    if (revision != Revision() && revision <= held->lost) {
      return absl::DataLossError(absl::StrCat("revision: ", revision.value, " of step ", id.value,
                                              " held bytes that are lost; revision ",
                                              held->revision.value,
                                              " does without them: open the step again"));
    }
    return absl::AbortedError(absl::StrCat("revision: ", revision.value, ", step ", id.value,
                                           " has revision ", held->revision.value));
  }
  return absl::OkStatus();
}

absl::Status State::CheckSealed(StepId id, Revision revision) const {
  FOREBAY_RETURN_IF_ERROR(CheckRevision(id, revision));
  if (step(id)->state == StepState::kSealed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("step: ", id.value, " is not sealed yet"));
}

absl::StatusOr<MicroBatchView> State::ViewMicroBatch(StepId id, Revision revision,
                                                     const MicroBatchRef& ref) const {
  FOREBAY_RETURN_IF_ERROR(CheckSealed(id, revision));
  const Step& held = *step(id);
  FOREBAY_RETURN_IF_ERROR(CheckMicroBatch(held, ref));
  const PlannedMiniBatch& mini_batch = held.mini_batches[ref.mini_batch];
  const batch::MicroBatch planned = mini_batch.micro_batch(ref.dp_rank, ref.micro_batch);
  MicroBatchView view;
  view.tokens = planned.tokens;
  view.padded_tokens = planned.padded_tokens;
  view.mini_batch = mini_batch.totals;
  const auto written = held.written.find(ref);
  if (written != held.written.end()) view.written = written->second;
  view.slots.reserve(planned.sequences.size());
  for (uint32_t s : planned.sequences) {
    const HeldSequence& sequence = held.sequences[s];
    const HeldRollout& rollout = held.rollouts[sequence.rollout];
    const HeldGroup& group = held.groups[rollout.group];
    Slot& slot = view.slots.emplace_back();
    slot.payload = rollout.payload;
    slot.payload_bytes = rollout.payload_bytes;
    slot.rollout = rollout.rollout;
    slot.group = group.group;
    slot.task = group.task;
    slot.sequence = s - rollout.first_sequence;
    slot.sequence_count = rollout.sequence_count;
    slot.tokens = sequence.tokens;
    slot.prompt_tokens = sequence.prompt_tokens;
    slot.loss_tokens = sequence.loss_tokens;
    slot.rollout_loss_tokens = rollout.loss_tokens;
    slot.reward = rollout.reward;
    slot.advantage = sequence.advantage;
    slot.version = rollout.version;
    slot.lag = rollout.lag;
    slot.mask_below = rollout.mask_below;
  }
  return view;
}

absl::Status State::CheckMicroBatch(const Step& step, const MicroBatchRef& ref) const {
  if (step.Has(ref)) return absl::OkStatus();
  if (ref.dp_rank >= step.spec.mesh.dp) {
    return absl::InvalidArgumentError(
        absl::StrCat("dp_rank: ", ref.dp_rank, ", less than ", step.spec.mesh.dp));
  }
  if (ref.mini_batch >= step.mini_batches.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mini_batch: ", ref.mini_batch, ", less than ", step.mini_batches.size()));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("micro_batch: ", ref.micro_batch, ", less than ",
                   step.mini_batches[ref.mini_batch].micro_batches_per_rank));
}

const Source* State::source(SourceId id) const {
  return id.value < sources_.size() ? &sources_[id.value] : nullptr;
}

const Source* State::FindSource(absl::string_view name) const {
  for (const Source& source : sources_) {
    if (source.settings.name == name) return &source;
  }
  return nullptr;
}

}  // namespace forebay::ledger
