// Asking shards for groups, taking what they answer, and giving it back.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "ledger/limits.h"
#include "ledger/state.h"

namespace forebay::ledger {

absl::Status State::CheckOne(const RequestGroups& c) const {
  FOREBAY_RETURN_IF_ERROR(CheckRevision(c.step, c.revision));
  const Step& held = *step(c.step);
  const bool by_tokens = held.spec.groups == 0;
  uint64_t asked = 0;
  for (const RequestGroups::Part& part : c.parts) {
    const uint64_t amount = by_tokens ? part.tokens : part.groups;
    if (part.shard.value >= channels_.size() || amount == 0 || amount > kTokensPerStepMax) {
      return absl::InvalidArgumentError(absl::StrCat("parts: ", amount, " of shard ",
                                                     part.shard.value, " of ", channels_.size()));
    }
    if (channels_[part.shard.value].absent) {
      return absl::FailedPreconditionError(
          absl::StrCat("parts: shard ", part.shard.value, " is absent"));
    }
    asked += amount;
  }
  const uint64_t lacking = by_tokens ? held.TokensLacking() : held.GroupsLacking();
  if (asked == 0 || asked > lacking || c.parts.size() > channels_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("parts: ", asked, " in all, step ", c.step.value, " lacks ", lacking));
  }
  return absl::OkStatus();
}

absl::Status State::Run(const RequestGroups& c, Tag tag, Effects* effects) {
  Step& held = *FindStep(c.step);
  for (const RequestGroups::Part& part : c.parts) {
    const bool by_tokens = held.spec.groups == 0;
    GroupRequest request{++last_request_, part.shard, by_tokens ? 0 : part.groups,
                         by_tokens ? part.tokens : 0};
    counters_.groups_requested += request.groups;
    codec::Reserve reserve;
    reserve.step = held.step;
    reserve.revision = held.revision;
    reserve.request = request.number;
    reserve.groups = by_tokens ? kGroupsPerStepMax : request.groups;
    reserve.tokens = request.tokens;
    reserve.train_version = held.train_version;
    reserve.max_lag = held.spec.max_lag;
    reserve.sources = held.spec.sources;
    held.requests.push_back(request);
    Send(part.shard, reserve, effects);
  }
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

// The request's number decides, not the revision: an open step that was planned anew keeps its
// requests. An answer to a request that is not known any more needs no word: the channel keeps the
// order, so the Unreserve that went out when the request was dropped reaches the shard after the
// request did.
void State::Take(ShardId shard, const codec::Reserved& reserved, Effects* effects) {
  Step* held = FindStep(reserved.step);
  if (held != nullptr) {
    const auto request = std::find_if(
        held->requests.begin(), held->requests.end(),
        [&](const GroupRequest& r) { return r.number == reserved.request && r.shard == shard; });
    if (request != held->requests.end()) {
      FOREBAY_CHECK(held->state == StepState::kOpen);
      FOREBAY_CHECK(request->groups == 0 || reserved.groups.size() <= request->groups);
      held->requests.erase(request);
      for (const codec::GroupReport& group : reserved.groups) held->Hold(group);
      counters_.groups_reserved += reserved.groups.size();
      SealIfComplete(*held, effects);
      return;
    }
  }
  ++counters_.stale_answers;
}

// A step that is over, or that gave the groups back meanwhile, needs nothing: the shard drops what
// is lost when it hears of that. One that is retained cannot be served again without what is lost,
// so it goes, and with it those before it.
void State::Take(ShardId, const codec::RolloutsLost& lost, Effects* effects) {
  Step* held = FindStep(lost.step);
  if (held == nullptr) return;
  const bool holds = std::ranges::any_of(held->rollouts, [&lost](const HeldRollout& rollout) {
    return std::ranges::find(lost.rollouts, rollout.rollout) != lost.rollouts.end();
  });
  if (!holds) return;
  if (held->live()) {
    PlanWithoutLost(*held, effects);
  } else {
    Release(held->step, effects);
  }
}

absl::Status State::CheckOne(const DropDamaged&) const { return absl::OkStatus(); }

absl::Status State::Run(const DropDamaged& c, Tag tag, Effects* effects) {
  for (auto& [id, step] : steps_) {
    DropOfAbsent(step, c.payloads, effects);
    const bool holds = std::ranges::any_of(step.written, [&c](const auto& of_micro_batch) {
      return std::ranges::any_of(of_micro_batch.second, [&c](const WrittenColumn& column) {
        return column.payload != PayloadId() &&
               std::ranges::find(c.payloads, column.payload) != c.payloads.end();
      });
    });
    if (holds && step.served_again) {
      PlanWithoutWritten(step, effects);
    } else if (holds) {
      PlanWithoutLost(step, effects);
    }
  }
  Answer(tag, StatusReply{}, effects);
  return absl::OkStatus();
}

// What a shard would say itself (RolloutsLost), if it were there. When it returns, it finds out
// what it has lost.
void State::DropOfAbsent(Step& step, const std::vector<PayloadId>& lost, Effects* effects) {
  const bool holds = std::ranges::any_of(step.rollouts, [&](const HeldRollout& rollout) {
    return rollout.payload != PayloadId() && absent(rollout.rollout.shard()) &&
           std::ranges::find(lost, rollout.payload) != lost.end();
  });
  if (!holds) return;
  if (step.live()) {
    PlanWithoutLost(step, effects);
  } else {
    Release(step.step, effects);
  }
}

void State::EndRevision(Step& step, Effects* effects) {
  step.lost = step.revision;
  step.revision = Revision(step.revision.value + 1);
  newest_revision_ = std::max(newest_revision_, step.revision);
  ++counters_.steps_damaged;
  effects->steps_changed.push_back(step.step);
}

// The same groups come back first, for they are the oldest that are ready. Those of a step that was
// served again do not: the shards drop them, and fresh ones take their place.
void State::PlanWithoutLost(Step& step, Effects* effects) {
  EndRevision(step, effects);
  step.state = StepState::kOpen;
  SendVersionState(effects);  // before the shards judge what comes back
  Return(step, effects);
}

// The rollouts are whole, and would not come back: the plan stays.
void State::PlanWithoutWritten(Step& step, Effects* effects) {
  EndRevision(step, effects);
  DropWritten(step, effects);
  for (ShardId shard : ShardsOf(step)) {
    Send(shard, codec::StepReplanned{step.step, step.revision}, effects);
  }
}

std::vector<ShardId> State::ShardsOf(const Step& step) const {
  std::vector<bool> involved(channels_.size());
  for (const GroupRequest& request : step.requests) involved[request.shard.value] = true;
  for (const HeldGroup& group : step.groups) involved[group.group.shard().value] = true;
  std::vector<ShardId> result;
  for (size_t i = 0; i < involved.size(); ++i) {
    if (involved[i]) result.push_back(ShardId(static_cast<uint8_t>(i)));
  }
  return result;
}

void State::Return(Step& step, Effects* effects) {
  counters_.groups_returned += step.groups.size();
  const std::vector<ShardId> shards = ShardsOf(step);
  step.Clear(&effects->dead_payloads);
  for (ShardId shard : shards) Send(shard, codec::Unreserve{step.step, {}}, effects);
}

}  // namespace forebay::ledger
