#include "server/rollout_messages.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/policy_messages.h"
#include "server/task_names.h"
#include "server/wire_ids.h"

namespace forebay::server {
namespace {

v1::RolloutStatus StatusToWire(shard::RolloutStatus status) {
  switch (status) {
    case shard::RolloutStatus::kFinished:
      return v1::ROLLOUT_STATUS_FINISHED;
    case shard::RolloutStatus::kTruncated:
      return v1::ROLLOUT_STATUS_TRUNCATED;
    case shard::RolloutStatus::kAborted:
      return v1::ROLLOUT_STATUS_ABORTED;
  }
  return v1::ROLLOUT_STATUS_UNSPECIFIED;
}

const char* StateOf(const shard::RolloutView& view) {
  if (view.kept) return "kept";
  switch (view.state) {
    case shard::GroupState::kOpen:
      return "held";
    case shard::GroupState::kReady:
      return "ready";
    case shard::GroupState::kReserved:
      return "reserved";
    case shard::GroupState::kTrained:
      return "trained";
    case shard::GroupState::kClosed:
      return "closed";
  }
  return "";
}

absl::Status CheckState(const std::string& state) {
  for (const char* known : {"", "held", "ready", "reserved", "trained", "kept"}) {
    if (state == known) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("state: is '", state.substr(0, 64),
                   "'; held, ready, reserved, trained, kept or '', which is the first three"));
}

absl::Status CheckBounds(const v1::ListRolloutsRequest& request) {
  const std::pair<const char*, double> bounds[] = {{"reward_min", request.reward_min()},
                                                   {"reward_max", request.reward_max()},
                                                   {"reward_above", request.reward_above()},
                                                   {"reward_below", request.reward_below()}};
  for (const auto& [name, bound] : bounds) {
    if (std::isnan(bound)) return absl::InvalidArgumentError(absl::StrCat(name, ": is no number"));
  }
  return absl::OkStatus();
}

// Bits of RolloutFilter::flags_, by the names of the contract.
constexpr uint32_t kTruncated = 1, kAborted = 2, kUnrewarded = 4, kLost = 8;
constexpr std::pair<const char*, uint32_t> kFlags[] = {
    {"truncated", kTruncated}, {"aborted", kAborted}, {"unrewarded", kUnrewarded}, {"lost", kLost}};

// Those that need no look at the store.
uint32_t FlagsOf(const shard::RolloutView& view) {
  return (view.status == shard::RolloutStatus::kTruncated ? kTruncated : 0) |
         (view.status == shard::RolloutStatus::kAborted ? kAborted : 0) |
         (view.rewarded ? 0 : kUnrewarded);
}

}  // namespace

void ToWire(const ServiceContext& context, const CatalogSnapshot& catalog,
            const shard::State& state, const shard::RolloutView& view, v1::RolloutState* out) {
  const auto* source = catalog.Find(view.task.source());
  out->set_rollout_id(view.rollout.value);
  out->set_group_id(view.group.value);
  out->set_task_id(WireTaskId(view.group.shard(), view.task));
  out->set_attempt_id(view.attempt.value);
  out->set_source(source == nullptr ? "" : source->settings.name);
  out->set_state(StateOf(view));
  out->set_status(StatusToWire(view.status));
  out->set_reward(view.reward);
  out->set_rewarded(view.rewarded);
  out->set_tokens(view.tokens);
  out->set_loss_tokens(view.loss_tokens);
  ToWire(view.version, out->mutable_version());
  out->set_payload_bytes(view.payload_bytes);
  out->set_step(view.step.value);
  out->set_advantage(view.advantage);
  out->set_external_id(ExternalId(context.contents, state.ContentOf(view.task)));
  for (const auto& [name, flag] : kFlags) {
    if ((FlagsOf(view) & flag) != 0) out->add_flags(name);
  }
}

std::optional<shard::RolloutView> FindRollout(const shard::State& state, RolloutId rollout) {
  // Where the list of rollouts has it, if it is there.
  uint64_t place = rollout.slot();
  const std::vector<shard::RolloutView> views = state.Rollouts(&place, 1);
  if (views.empty() || views[0].rollout != rollout) return state.FindKept(rollout);
  return views[0];
}

absl::StatusOr<RolloutFilter> RolloutFilter::Make(const ServiceContext& context,
                                                  const CatalogSnapshot& catalog,
                                                  const v1::ListRolloutsRequest& request) {
  RolloutFilter filter;
  filter.payloads_ = context.payloads;
  filter.request_ = request;
  if (!request.source().empty()) {
    const CatalogSource* source = catalog.Find(request.source());
    if (source == nullptr) {
      return absl::NotFoundError(absl::StrCat("source: '", request.source(), "' is not a source"));
    }
    filter.source_ = source->id;
  }
  for (const auto& status : {CheckState(request.state()), CheckBounds(request)}) {
    if (!status.ok()) return status;
  }
  for (int i = 0; i < request.flags_size(); ++i) {
    uint32_t bit = 0;
    for (const auto& [name, flag] : kFlags) {
      if (request.flags(i) == name) bit = flag;
    }
    if (bit == 0) {
      return absl::InvalidArgumentError(absl::StrCat("flags[", i, "]: is '",
                                                     request.flags(i).substr(0, 64),
                                                     "'; truncated, aborted, unrewarded or lost"));
    }
    filter.flags_ |= bit;
  }
  return filter;
}

std::vector<shard::RolloutView> RolloutFilter::Next(const shard::State& state,
                                                    uint64_t* cursor) const {
  return request_.state() == "kept" ? state.Kept(cursor, 1) : state.Rollouts(cursor, 1);
}

bool RolloutFilter::InState(const shard::RolloutView& view) const {
  if (source_.has_value() && view.task.source() != *source_) return false;
  if (request_.state().empty()) return view.state != shard::GroupState::kTrained;
  return request_.state() == StateOf(view);
}

bool RolloutFilter::RewardMatches(const shard::RolloutView& view) const {
  const v1::ListRolloutsRequest& r = request_;
  const bool bounded =
      r.has_reward_min() || r.has_reward_max() || r.has_reward_above() || r.has_reward_below();
  if (!bounded) return true;
  return view.rewarded && (!r.has_reward_min() || view.reward >= r.reward_min()) &&
         (!r.has_reward_max() || view.reward <= r.reward_max()) &&
         (!r.has_reward_above() || view.reward > r.reward_above()) &&
         (!r.has_reward_below() || view.reward < r.reward_below());
}

bool RolloutFilter::Lost(const shard::RolloutView& view) const {
  if ((flags_ & kLost) == 0) return false;
  std::vector<storage::PayloadView> held;
  return absl::IsNotFound(payloads_->Open({&view.payload, 1}, storage::Parts::kHot, &held));
}

bool RolloutFilter::FlagMatches(const shard::RolloutView& view) const {
  return flags_ == 0 || (flags_ & FlagsOf(view)) != 0 || Lost(view);
}

bool RolloutFilter::Matches(const shard::RolloutView& view) const {
  return InState(view) && RewardMatches(view) && FlagMatches(view);
}

}  // namespace forebay::server
