// Pushes of rollouts and partial attempts, and rewards that come late.
//
// A push with the last token of an attempt is taken as long as the attempt has not been handed out
// again, also when its lease is over; and a push that is in already gets its first answer again.
// Payloads of what is not taken are dead at once.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "shard/check_rollout.h"
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

// All sequences of a rollout; `scratch` holds them if there are several.
std::span<const SequenceMeta> SequencesOf(const RolloutMeta& meta,
                                          std::vector<SequenceMeta>* scratch) {
  if (meta.more.empty()) return {&meta.first, 1};
  scratch->push_back(meta.first);
  scratch->insert(scratch->end(), meta.more.begin(), meta.more.end());
  return *scratch;
}

}  // namespace

void Machine::Run(const PutRollouts& c, Tag tag, Effects* effects) {
  PutRolloutsReply reply;
  reply.outcomes.reserve(c.rollouts.size());
  const uint32_t session = sessions_.Find(c.session);
  for (const RolloutMeta& meta : c.rollouts) {
    if (session == kNone) {
      reply.outcomes.push_back(Refuse(PushResult::kUnknown, "session",
                                      std::string(UnknownSession(c.session).message())));
      FreePayload(meta.payload, 0, effects);
      continue;
    }
    reply.outcomes.push_back(Put(meta, sessions_[session], effects));
    const PushResult result = reply.outcomes.back().result;
    reply.accepted += result == PushResult::kAccepted || result == PushResult::kDuplicate;
  }
  AddReply(std::move(reply), tag, effects);
}

PushOutcome Machine::Put(const RolloutMeta& meta, SessionRecord& session, Effects* effects) {
  const uint32_t slot = tables_.Find(meta.lease.attempt);
  PayloadId kept;  // the payload that a repeated command names, and that is held
  PushOutcome outcome = PutFound(slot, meta, &kept, effects);
  if (outcome.result == PushResult::kAccepted) {
    ++session.pushed;
  } else if (meta.payload != kept) {
    FreePayload(meta.payload, 0, effects);
  }
  return outcome;
}

PushOutcome Machine::PutFound(uint32_t slot, const RolloutMeta& meta, PayloadId* kept,
                              Effects* effects) {
  if (slot == kNone) {
    return Refuse(PushResult::kUnknown, "attempt_id",
                  absl::StrCat("attempt ", meta.lease.attempt.value, " is not known"));
  }
  AttemptRecord& attempt = tables_.attempt(slot);
  if (meta.lease.token == 0) return Refuse(PushResult::kInvalid, "token", "token 0");
  if (meta.lease.token > attempt.token) {
    return Refuse(PushResult::kLeaseLost, "token",
                  absl::StrCat("token ", meta.lease.token, "; the last one given is ",
                               attempt.token, ": the assignment is of another run"));
  }
  if (meta.lease.token < attempt.token && !options_.mutations.accept_old_tokens) {
    return Refuse(PushResult::kLeaseLost, "token",
                  absl::StrCat("the attempt was handed out again under token ", attempt.token));
  }
  if (attempt.state == AttemptState::kClosed) return PutLate(slot);
  const bool unfinished = meta.partial || meta.status == RolloutStatus::kAborted;
  if (attempt.state == AttemptState::kDone || (attempt.flags & AttemptRecord::kTaken) ||
      (unfinished && (attempt.flags & AttemptRecord::kReported))) {
    if (options_.mutations.accept_duplicates && attempt.rollout != kNone) {
      tables_.rollout(attempt.rollout).payload = meta.payload;
      return {};
    }
    *kept = attempt.rollout != kNone ? tables_.rollout(attempt.rollout).payload : attempt.partial;
    return Refuse(PushResult::kDuplicate, "", "it is in already");
  }
  const bool eval = tables_.group(attempt.group).eval != kNone;
  PolicyVersion assigned = VersionOf(slot);
  const codec::SourceSettings& settings = SettingsOfGroup(attempt.group);
  if (Refusal refusal = CheckRollout(meta, settings, versions_, eval ? &assigned : nullptr)) {
    // Done with weights of an abandoned branch: it is to be done again.
    if (refusal->result == PushResult::kStale && !eval && attempt.state == AttemptState::kLeased) {
      ++SourceOf(attempt.group).counters.stale;
      Requeue(slot);
    }
    return *std::move(refusal);
  }
  if (attempt.partial != PayloadId()) {
    assigned.number = std::min(assigned.number, attempt.partial_version);
  }
  if (meta.partial) {
    PutPartial(slot, meta, assigned, effects);
  } else if (meta.status == RolloutStatus::kAborted &&
             settings.aborted == codec::AbortedRule::kRetry) {
    PutAborted(slot, meta, effects);
  } else {
    std::vector<SequenceMeta> scratch;
    Refusal stale;
    if (!eval) stale = CheckStale(SequencesOf(meta, &scratch), assigned, settings);
    if (stale) {
      if (attempt.state == AttemptState::kLeased) {
        ++SourceOf(attempt.group).counters.stale;
        Requeue(slot);
      }
      return *std::move(stale);
    }
    const uint32_t group = attempt.group;
    AcceptOrDrop(slot, meta, assigned, effects);
    FinishIfComplete(group, effects);
  }
  return {};
}

PushOutcome Machine::PutLate(uint32_t slot) {
  AttemptRecord& attempt = tables_.attempt(slot);
  const bool stale = tables_.group(attempt.group).close_reason == CloseReason::kRewound;
  if ((attempt.flags & AttemptRecord::kCounted) == 0) {
    attempt.flags |= AttemptRecord::kCounted;
    SourceCounters& counters = SourceOf(attempt.group).counters;
    ++(stale ? counters.stale : counters.late);
  }
  return stale ? Refuse(PushResult::kStale, "versions",
                        "the attempt's branch of versions was abandoned")
               : Refuse(PushResult::kLate, "", "the group is complete without it");
}

// A rollout that no step could train any more is not taken; its attempt is handed out again, to be
// done with newer weights.
Refusal Machine::CheckStale(std::span<const SequenceMeta> sequences, PolicyVersion assigned,
                            const codec::SourceSettings& settings) const {
  if (settings.late != codec::LateRule::kDrop && settings.late != codec::LateRule::kWait) {
    return std::nullopt;
  }
  const uint32_t version = rollout::VersionBy(settings.lag_of, sequences, assigned.number);
  if (!UselessAt(version, settings)) return std::nullopt;
  return Refuse(PushResult::kStale, "versions",
                absl::StrCat("version ", version, " has lag ", train_floor_ - version,
                             " at least; at most ", settings.max_lag));
}

void Machine::PutPartial(uint32_t slot, const RolloutMeta& meta, PolicyVersion assigned,
                         Effects* effects) {
  AttemptRecord& attempt = tables_.attempt(slot);
  std::vector<SequenceMeta> scratch;
  const uint32_t oldest =
      rollout::VersionBy(codec::LagOf::kOldest, SequencesOf(meta, &scratch), assigned.number);
  if (attempt.partial != PayloadId()) FreePayload(attempt.partial, 0, effects);
  attempt.partial = meta.payload;
  attempt.partial_version = oldest;
  attempt.flags |= AttemptRecord::kReported;
  ++SourceOf(attempt.group).counters.partials;
  if (attempt.state == AttemptState::kLeased) Requeue(slot);
}

void Machine::PutAborted(uint32_t slot, const RolloutMeta& meta, Effects* effects) {
  AttemptRecord& attempt = tables_.attempt(slot);
  FreePayload(meta.payload, 0, effects);
  attempt.flags |= AttemptRecord::kReported;
  // A lease that expired has counted as a failure already.
  if (attempt.state != AttemptState::kLeased) return;
  ++SourceOf(attempt.group).counters.failed;
  FailAttempt(slot, /*in_rounds=*/false, effects);
}

void Machine::AcceptOrDrop(uint32_t slot, const RolloutMeta& meta, PolicyVersion assigned,
                           Effects* effects) {
  AttemptRecord& attempt = tables_.attempt(slot);
  GroupRecord& group = tables_.group(attempt.group);
  SourceState& source = SourceOf(attempt.group);
  const codec::SourceSettings& settings = SettingsOfGroup(attempt.group);
  EndLease(slot);
  tables_.Settle(slot, AttemptState::kDone);
  --source.unfinished;
  if (group.to_hand_out() == 0) QueueOf(attempt.group).Remove(tables_.groups(), attempt.group);
  if (attempt.partial != PayloadId()) FreePayload(attempt.partial, 0, effects);
  attempt.partial = PayloadId();
  ++source.counters.accepted;
  const bool truncated = meta.status == RolloutStatus::kTruncated && group.eval == kNone;
  const bool drop_truncated = truncated && settings.truncated == codec::TruncatedRule::kDrop;
  if (drop_truncated || meta.status == RolloutStatus::kAborted) {
    const DropReason reason = drop_truncated ? DropReason::kTruncated : DropReason::kAborted;
    ++source.counters.dropped[static_cast<size_t>(reason)];
    return FreePayload(meta.payload, 0, effects);
  }
  const uint8_t all = AllRewards(settings);
  std::vector<SequenceMeta> scratch;
  const uint32_t r = tables_.AddRollout(slot, SequencesOf(meta, &scratch), assigned,
                                        (meta.rewards_present & all) == all);
  RolloutRecord& rollout = tables_.rollout(r);
  rollout.reward = meta.reward;
  rollout.rewards_present = meta.rewards_present;
  rollout.status = meta.status;
  rollout.duration_ms = static_cast<uint32_t>(std::min<uint64_t>(meta.duration_ms, UINT32_MAX));
  if (truncated && settings.truncated == codec::TruncatedRule::kMask) {
    rollout.flags |= RolloutRecord::kMasked;
  }
  ++source.counters.held;
  source.counters.tokens_accepted += rollout.tokens;
  const double bytes = static_cast<double>(meta.payload_bytes);
  source.payload_mean += source.payload_mean == 0 ? bytes : (bytes - source.payload_mean) / 64;
  if (group.eval != kNone) {
    // Of an evaluation only the numbers are kept.
    ++evals_[group.eval].rollouts;
    return FreePayload(meta.payload, 0, effects);
  }
  rollout.payload = meta.payload;
  rollout.payload_bytes = meta.payload_bytes;
  payload_bytes_ += meta.payload_bytes;
}

void Machine::Run(const SetRewards& c, Tag tag, Effects* effects) {
  SetRewardsReply reply;
  reply.results.reserve(c.rewards.size());
  for (const LateReward& reward : c.rewards) reply.results.push_back(SetReward(reward, effects));
  AddReply(std::move(reply), tag, effects);
}

PushResult Machine::SetReward(const LateReward& reward, Effects* effects) {
  const uint32_t slot = tables_.Find(reward.attempt);
  if (slot == kNone) return PushResult::kUnknown;
  const AttemptRecord& attempt = tables_.attempt(slot);
  if (attempt.state == AttemptState::kClosed) return PushResult::kLate;
  if (attempt.state != AttemptState::kDone) return PushResult::kUnknown;
  const uint8_t all = AllRewards(SettingsOfGroup(attempt.group));
  if (!std::isfinite(reward.reward) || reward.rewards_present == 0 ||
      (reward.rewards_present & ~all)) {
    return PushResult::kInvalid;
  }
  // Without a rollout it was rewarded before its group closed, or came too late.
  if (attempt.rollout == kNone) return PushResult::kLate;
  RolloutRecord& rollout = tables_.rollout(attempt.rollout);
  if ((reward.rewards_present & ~rollout.rewards_present) == 0) return PushResult::kDuplicate;
  if (reward.rewards_present & rollout.rewards_present) return PushResult::kInvalid;
  if (!std::isfinite(rollout.reward + reward.reward)) return PushResult::kInvalid;
  rollout.rewards_present |= reward.rewards_present;
  rollout.reward += reward.reward;
  if ((rollout.rewards_present & all) == all && (rollout.flags & RolloutRecord::kRewarded) == 0) {
    tables_.SetRewarded(attempt.rollout);
    FinishIfComplete(attempt.group, effects);
  }
  return PushResult::kAccepted;
}

}  // namespace forebay::shard
