// Shards that do not answer: steps go on without them, and they are taken back when they return.
//
// What an absent shard is told waits in its channel, in order, and so does its word on
// reservations: a step that gave groups of it up has an Unreserve there. A plan that is complete
// needs the shard no more, for it names all that is fetched: it stays as it is while its bytes can
// be read.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/state.h"

namespace forebay::ledger {

absl::Status State::CheckOne(const MarkShard& c) const {
  if (c.shard.value < channels_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard: ", c.shard.value, ", less than ", channels_.size()));
}

absl::Status State::Run(const MarkShard& c, Tag tag, Effects* effects) {
  Answer(tag, StatusReply{}, effects);
  ShardChannel& channel = channels_[c.shard.value];
  if (channel.absent == c.absent) return absl::OkStatus();
  channel.absent = c.absent;
  if (!c.absent) {
    ++counters_.shard_returns;
    // It was told nothing of versions meanwhile.
    versions_ = CurrentVersionState();
    SendToAll(versions_, effects);
    return absl::OkStatus();
  }
  ++counters_.shard_absences;
  // Sealing a step that cannot be packed ends those after it, so the next one is looked for anew.
  for (StepId id = next_step_; id < next_to_open(); id = StepId(id.value + 1)) {
    Step& step = *FindStep(id);
    if (step.state == StepState::kOpen) GiveUp(step, c.shard, effects);
  }
  return absl::OkStatus();
}

void State::GiveUp(Step& step, ShardId shard, Effects* effects) {
  const size_t held = step.groups.size();
  const size_t asked = std::erase_if(
      step.requests, [shard](const GroupRequest& request) { return request.shard == shard; });
  step.DropGroupsOf(shard);
  const size_t given_up = held - step.groups.size();
  if (asked + given_up == 0) return;
  counters_.groups_of_absent += given_up;
  counters_.groups_returned += given_up;
  if (!options_.mutations.forget_absent) Send(shard, codec::Unreserve{step.step, {}}, effects);
  SealIfComplete(step, effects);
}

}  // namespace forebay::ledger
