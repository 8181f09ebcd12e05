// Rollouts whose payloads are lost, and those that an operator drops.
//
// A ready group goes on with the rollouts that are left, under the baseline that was fixed when it
// completed; one with too few is dropped as short. In an incomplete group the attempt is done
// again. What a step holds is for the ledger to give back: until then it may be trained, by ranks
// that have its bytes already. What stays of a committed step is for the ledger to let go; what is
// kept of one for people to look at just goes.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "shard/limits.h"
#include "shard/machine.h"
#include "shard/reply.h"

namespace forebay::shard {

using rollout::AttemptRecord;
using rollout::AttemptState;
using rollout::CloseReason;
using rollout::GroupState;
using rollout::RolloutRecord;

namespace {

std::string Hex(uint64_t id) { return absl::StrCat("0x", absl::Hex(id)); }

bool OfAStep(const rollout::GroupRecord& group) {
  return group.state == GroupState::kReserved || group.state == GroupState::kTrained;
}

}  // namespace

void Machine::DropLostPartial(uint32_t slot, Effects* effects) {
  AttemptRecord& attempt = tables_.attempt(slot);
  // Its holder may have begun with it, and then what it pushes is as old.
  if (attempt.state == AttemptState::kLeased && attempt.partial_version < attempt.version) {
    LeasedVersions& leased = SourceOf(attempt.group).leased;
    leased.Remove(attempt.version);
    attempt.version = attempt.partial_version;
    leased.Add(attempt.version);
  }
  FreePayload(attempt.partial, 0, effects);
  attempt.partial = PayloadId();
}

// The slot of a rollout that was not marked before, else kNone.
uint32_t Machine::MarkDamaged(const DamagedPayload& lost, Effects* effects) {
  const uint32_t slot = tables_.Find(lost.attempt);
  if (slot == kNone || lost.payload == PayloadId()) return kNone;
  const AttemptRecord& attempt = tables_.attempt(slot);
  if (attempt.partial == lost.payload) DropLostPartial(slot, effects);
  if (attempt.rollout == kNone) return kNone;
  RolloutRecord& rollout = tables_.rollout(attempt.rollout);
  if (rollout.payload != lost.payload || (rollout.flags & RolloutRecord::kDamaged)) return kNone;
  rollout.flags |= RolloutRecord::kDamaged;
  return attempt.rollout;
}

void Machine::DropMarked(uint32_t group, Effects* effects) {
  tables_.ForEachRollout(group, [&](uint32_t r) {
    if (tables_.rollout(r).flags & RolloutRecord::kDamaged) {
      DropRollout(r, DropReason::kDamaged, effects);
    }
  });
}

// Rollouts of one group, which no step holds.
void Machine::TakeOut(uint32_t slot, const std::vector<uint32_t>& rollouts, DropReason reason,
                      Effects* effects) {
  if (tables_.group(slot).state == GroupState::kOpen) {
    for (const uint32_t r : rollouts) {
      const uint32_t attempt = tables_.rollout(r).attempt;
      tables_.attempt(attempt).flags |= AttemptRecord::kTaken | AttemptRecord::kReported;
      DropRollout(r, reason, effects);
      Requeue(attempt);
    }
    return;
  }
  SourceOf(slot).ready.Remove(tables_.groups(), slot);
  for (const uint32_t r : rollouts) DropRollout(r, reason, effects);
  MakeReady(slot);
  Cull(slot, SettingsOfGroup(slot).max_lag, train_floor_, effects);
}

void Machine::Run(const DropDamaged& c, Tag tag, Effects* effects) {
  CountReply reply;
  // A group's all at once, so that none of them is counted as short.
  std::map<uint32_t, std::vector<uint32_t>> by_group;
  std::map<StepId, std::vector<RolloutId>> of_steps;
  std::vector<PayloadId> others;
  for (const DamagedPayload& lost : c.payloads) {
    const uint32_t r = MarkDamaged(lost, effects);
    if (r == kNone) {
      others.push_back(lost.payload);
      continue;
    }
    ++reply.count;
    const uint32_t group = tables_.attempt(tables_.rollout(r).attempt).group;
    if (OfAStep(tables_.group(group))) {
      of_steps[tables_.group(group).step].push_back(tables_.IdOfRollout(r));
    } else {
      by_group[group].push_back(r);
    }
  }
  for (const auto& [group, rollouts] : by_group) {
    TakeOut(group, rollouts, DropReason::kDamaged, effects);
  }
  for (auto& [step, rollouts] : of_steps) {
    Send(codec::RolloutsLost{step, std::move(rollouts)}, effects);
  }
  if (!others.empty()) {
    std::ranges::sort(others);
    reply.count += kept_.Drop(others, &effects->dead_payloads);
  }
  AddReply(std::move(reply), tag, effects);
}

absl::Status Machine::CheckDrop(const DropByOperator& c) const {
  if (curriculum_.source(c.source) == nullptr) {
    return absl::NotFoundError(absl::StrCat("source: ", c.source.value, " is not known"));
  }
  if (c.rollouts.size() > kEntriesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("rollout_ids: ", c.rollouts.size(), " entries; at most ", kEntriesMax));
  }
  for (const RolloutId id : c.rollouts) {
    const uint32_t slot = tables_.Find(id);
    if (const uint32_t kept = slot == kNone ? kept_.Find(id) : kNone; kept != kNone) {
      if (kept_.table()[kept].task.source() == c.source) continue;
    }
    const uint32_t group =
        slot == kNone ? kNone : tables_.attempt(tables_.rollout(slot).attempt).group;
    if (group == kNone || tables_.group(group).task.source() != c.source) {
      return absl::NotFoundError(
          absl::StrCat("rollout_ids: the source holds no rollout ", Hex(id.value)));
    }
    if (tables_.group(group).eval != kNone) {
      return absl::FailedPreconditionError(
          absl::StrCat("rollout_ids: ", Hex(id.value), " is of an evaluation"));
    }
    if (tables_.group(group).state == GroupState::kReserved) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rollout_ids: ", Hex(id.value), " is reserved by step ", tables_.group(group).step.value,
          "; it can be dropped when that is aborted"));
    }
    if (tables_.group(group).state == GroupState::kTrained) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rollout_ids: ", Hex(id.value), " is trained, by step ", tables_.group(group).step.value,
          "; it stays for a rewind until a checkpoint covers that"));
    }
  }
  return absl::OkStatus();
}

void Machine::Run(const DropByOperator& c, Tag tag, Effects* effects) {
  CountReply reply{.status = CheckDrop(c)};
  if (!reply.status.ok()) return AddReply(std::move(reply), tag, effects);
  const SourceCounters& counters = sources_[c.source.value].counters;
  const uint64_t before = counters.held;
  std::map<uint32_t, std::vector<uint32_t>> by_group;
  for (const RolloutId id : c.rollouts) {
    const uint32_t r = tables_.Find(id);
    if (r == kNone) {
      // Perhaps named twice.
      const uint32_t kept = kept_.Find(id);
      if (kept == kNone) continue;
      kept_.Drop(kept, &effects->dead_payloads);
      ++reply.count;
      continue;
    }
    std::vector<uint32_t>& of_group = by_group[tables_.attempt(tables_.rollout(r).attempt).group];
    if (std::find(of_group.begin(), of_group.end(), r) == of_group.end()) of_group.push_back(r);
  }
  for (const auto& [group, rollouts] : by_group) {
    TakeOut(group, rollouts, DropReason::kOperator, effects);
  }
  while (c.ready && sources_[c.source.value].ready.size() > 0) {
    const uint32_t group = sources_[c.source.value].ready.front();
    DropGroup(group, DropReason::kOperator, CloseReason::kOperator, effects);
  }
  reply.count += before - counters.held;
  AddReply(std::move(reply), tag, effects);
}

}  // namespace forebay::shard
