// Leases that end without a rollout, and what the primary's clocks have to say.
#include <algorithm>

#include "shard/machine.h"
#include "shard/reply.h"

namespace forebay::shard {

using rollout::AttemptRecord;
using rollout::AttemptState;
using rollout::GroupRecord;
using rollout::GroupState;
using rollout::RolloutRecord;

namespace {

// The slot of a live lease, kNone if it is none (any more).
uint32_t FindLease(const rollout::Tables& tables, const LeaseRef& lease) {
  const uint32_t slot = tables.Find(lease.attempt);
  if (slot == kNone) return kNone;
  const AttemptRecord& attempt = tables.attempt(slot);
  return attempt.state == AttemptState::kLeased && attempt.token == lease.token ? slot : kNone;
}

// Rollouts, or what unfinished attempts have saved.
bool HoldsPayloads(const rollout::Tables& tables, uint32_t group) {
  bool holds = tables.group(group).held() > 0;
  tables.ForEachAttempt(group,
                        [&](uint32_t a) { holds |= tables.attempt(a).partial != PayloadId(); });
  return holds;
}

bool Contains(const std::vector<SourceId>& sources, SourceId source) {
  return std::find(sources.begin(), sources.end(), source) != sources.end();
}

}  // namespace

void Machine::Run(const Release& c, Tag tag, Effects* effects) {
  CountReply reply;
  const uint32_t session = sessions_.Find(c.session);
  if (session == kNone) reply.status = UnknownSession(c.session);
  for (const LeaseRef& lease : c.leases) {
    const uint32_t slot = FindLease(tables_, lease);
    if (session == kNone || slot == kNone || tables_.attempt(slot).session != session) continue;
    ++SourceOf(tables_.attempt(slot).group).counters.released;
    ++reply.count;
    Requeue(slot);
  }
  AddReply(std::move(reply), tag, effects);
}

void Machine::Run(const Fail& c, Tag tag, Effects* effects) {
  CountReply reply;
  const uint32_t session = sessions_.Find(c.session);
  if (session == kNone) reply.status = UnknownSession(c.session);
  for (const LeaseRef& lease : c.leases) {
    const uint32_t slot = FindLease(tables_, lease);
    if (session == kNone || slot == kNone || tables_.attempt(slot).session != session) continue;
    ++SourceOf(tables_.attempt(slot).group).counters.failed;
    ++reply.count;
    tables_.attempt(slot).flags |= AttemptRecord::kReported;
    FailAttempt(slot, /*in_rounds=*/false, effects);
  }
  AddReply(std::move(reply), tag, effects);
}

void Machine::Run(const Expire& c, Tag tag, Effects* effects) {
  CountReply reply;
  for (const LeaseRef& lease : c.leases) {
    const uint32_t slot = FindLease(tables_, lease);
    if (slot == kNone) continue;
    ++SourceOf(tables_.attempt(slot).group).counters.expired;
    ++reply.count;
    // An actor that dies loses many attempts of a group at once; that says little about the task.
    FailAttempt(slot, /*in_rounds=*/true, effects);
  }
  AddReply(std::move(reply), tag, effects);
}

void Machine::Run(const GroupsTimedOut& c, Tag tag, Effects* effects) {
  CountReply reply;
  for (const AttemptId id : c.unrewarded) {
    const uint32_t slot = tables_.Find(id);
    if (slot == kNone || tables_.attempt(slot).rollout == kNone) continue;
    AttemptRecord& attempt = tables_.attempt(slot);
    const uint32_t rollout = attempt.rollout;
    if (tables_.group(attempt.group).state != GroupState::kOpen) continue;
    if (tables_.rollout(rollout).flags & RolloutRecord::kRewarded) continue;
    ++reply.count;
    attempt.flags |= AttemptRecord::kTaken | AttemptRecord::kReported;
    DropRollout(rollout, DropReason::kNoReward, effects);
    FailAttempt(slot, /*in_rounds=*/true, effects);
  }
  for (const GroupId id : c.groups) {
    const uint32_t slot = tables_.Find(id);
    if (slot == kNone) continue;
    GroupRecord& group = tables_.group(slot);
    if (group.state != GroupState::kOpen || group.eval != kNone) continue;
    ++reply.count;
    group.flags |= GroupRecord::kPastDeadline;
    FinishIfComplete(slot, effects);
  }
  AddReply(std::move(reply), tag, effects);
}

// Of sources that are not spared: the youngest incomplete group that holds bytes, else kNone.
uint32_t Machine::YoungestOpen(const std::vector<SourceId>& spared) const {
  uint32_t youngest = kNone;
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    if (Contains(spared, SourceId(static_cast<uint16_t>(i)))) continue;
    uint32_t slot = sources_[i].open.tail();
    // A group that holds nothing frees nothing.
    while (slot != kNone && (!HoldsPayloads(tables_, slot) || tables_.group(slot).eval != kNone)) {
      slot = rollout::OrderList::Previous(tables_.groups(), slot);
    }
    if (slot == kNone) continue;
    const bool younger =
        youngest == kNone || tables_.group(slot).sequence > tables_.group(youngest).sequence;
    if (younger) youngest = slot;
  }
  return youngest;
}

// Of sources that are not spared: the ready group with the oldest version, else kNone.
uint32_t Machine::StalestReady(const std::vector<SourceId>& spared) const {
  uint32_t stalest = kNone;
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    const uint32_t slot = sources_[i].ready.front();
    if (slot == kNone || Contains(spared, SourceId(static_cast<uint16_t>(i)))) continue;
    if (stalest == kNone || Staler(slot, stalest)) stalest = slot;
  }
  return stalest;
}

void Machine::Run(const DropForBudget& c, Tag tag, Effects* effects) {
  CountReply reply;
  uint32_t slot = YoungestOpen(c.spared);
  if (slot == kNone && !c.spared.empty()) slot = StalestReady(c.spared);
  if (slot != kNone) {
    reply.count = 1;
    DropGroup(slot, DropReason::kBudget, rollout::CloseReason::kBudget, effects);
  }
  AddReply(std::move(reply), tag, effects);
}

}  // namespace forebay::shard
