// Snapshot, restore and the checks of Tables. A snapshot may come damaged from a disk, so Check
// trusts nothing that it reads.
#include <cmath>
#include <utility>

#include "rollout/tables.h"

namespace forebay::rollout {
namespace {

bool SequencesHold(const std::vector<SequenceMeta>& sequences, const RolloutRecord& rollout) {
  if (sequences.empty()) return false;
  uint64_t tokens = 0;
  uint64_t loss_tokens = 0;
  for (const SequenceMeta& sequence : sequences) {
    tokens += sequence.tokens;
    loss_tokens += sequence.loss_tokens;
    uint64_t end = 0;  // one past the last run's offset
    for (const VersionRun& run : sequence.versions) {
      if (run.offset >= sequence.tokens || run.offset + uint64_t{1} <= end) return false;
      if (end == 0 && run.offset != 0) return false;
      end = run.offset + uint64_t{1};
    }
    if (sequence.advantage && !std::isfinite(*sequence.advantage)) return false;
  }
  return tokens == rollout.tokens && loss_tokens == rollout.loss_tokens;
}

bool ValuesHold(const AttemptRecord& attempt) { return attempt.state <= AttemptState::kClosed; }

bool ValuesHold(const GroupRecord& group) {
  return group.state <= GroupState::kTrained && group.close_reason <= CloseReason::kOperator &&
         group.advantage <= codec::AdvantageKind::kNone && group.attempts >= 1 &&
         group.attempts <= kAttemptsPerGroupMax;
}

bool ValuesHold(const RolloutRecord& rollout) {
  return rollout.status <= RolloutStatus::kAborted && std::isfinite(rollout.reward) &&
         std::isfinite(rollout.advantage);
}

}  // namespace

void Tables::Snapshot(codec::Writer& writer) const {
  groups_.Snapshot(writer);
  attempts_.Snapshot(writer);
  rollouts_.Snapshot(writer);
  sequences_.Snapshot(writer, [](codec::Writer& to, std::span<const SequencesRef> sequences) {
    for (const SequencesRef& of_rollout : sequences) {
      if (of_rollout == nullptr) continue;
      to(!of_rollout->empty());
      if (!of_rollout->empty()) to(*of_rollout);
    }
  });
}

bool Tables::Restore(codec::Reader& reader) {
  *this = Tables(shard_);
  if (!groups_.Restore(reader) || !attempts_.Restore(reader) || !rollouts_.Restore(reader)) {
    return false;
  }
  for (uint32_t slot = 0; slot < rollouts_.size() && reader.ok(); ++slot) {
    if (!rollouts_.InUse(slot)) continue;
    bool has_sequences = false;
    reader(has_sequences);
    std::vector<SequenceMeta> sequences;
    if (has_sequences) {
      reader(sequences);
      if (sequences.empty()) return false;
    }
    SetSequences(slot, has_sequences
                           ? std::make_shared<const std::vector<SequenceMeta>>(std::move(sequences))
                           : NoSequences());
  }
  return reader.ok() && Check()[0] == '\0';
}

const char* Tables::CheckPending(uint32_t slot) const {
  const GroupRecord& group = groups_[slot];
  uint32_t count = 0;
  for (uint32_t a = group.pending_head; a != kNone; a = attempts_[a].link) {
    if (!attempts_.InUse(a) || attempts_[a].group != slot)
      return "a pending attempt is not its group's";
    if (attempts_[a].state != AttemptState::kPending) return "an attempt among the pending is not";
    if (++count > group.pending) return "pending attempts are miscounted";
  }
  return count == group.pending ? "" : "pending attempts are miscounted";
}

const char* Tables::CheckGroup(uint32_t slot, uint64_t* attempts_seen) const {
  const GroupRecord& group = groups_[slot];
  if (!ValuesHold(group)) return "a group's value is out of range";
  uint32_t count = 0, pending = 0, leased = 0, rewarded = 0, unrewarded = 0;
  for (uint32_t a = group.first_attempt; a != kNone; a = attempts_[a].next) {
    if (!attempts_.InUse(a)) return "a group names an attempt that is not there";
    const AttemptRecord& attempt = attempts_[a];
    if (!ValuesHold(attempt)) return "an attempt's value is out of range";
    if (attempt.group != slot || attempt.number != count) return "an attempt is not its group's";
    if (++count > group.attempts) return "a group's attempts are miscounted";
    pending += attempt.state == AttemptState::kPending;
    leased += attempt.state == AttemptState::kLeased;
    if ((attempt.session != kNone) != (attempt.state == AttemptState::kLeased)) {
      return "an attempt has a session without a lease, or a lease without";
    }
    if (attempt.state == AttemptState::kLeased && attempt.token == 0) return "a lease has no token";
    if (attempt.rollout == kNone) continue;
    if (attempt.state != AttemptState::kDone) return "an unfinished attempt has a rollout";
    if (!rollouts_.InUse(attempt.rollout)) return "an attempt names a rollout that is not there";
    if (rollouts_[attempt.rollout].attempt != a) return "a rollout is not its attempt's";
    const bool has_reward = rollouts_[attempt.rollout].flags & RolloutRecord::kRewarded;
    ++(has_reward ? rewarded : unrewarded);
  }
  *attempts_seen += count;
  if (count != group.attempts) return "a group's attempts are miscounted";
  if (group.screening >= group.attempts && group.screening != 0)
    return "a group has no more than is screened";
  if (group.held_back() > pending) return "what a group holds back was handed out";
  if (pending != group.pending || leased != group.leased) return "a group's leases are miscounted";
  if (rewarded != group.rewarded || unrewarded != group.unrewarded) {
    return "a group's rollouts are miscounted";
  }
  if (group.state != GroupState::kOpen && (leased != 0 || pending != 0)) {
    return "a group that is not open has unfinished attempts";
  }
  return CheckPending(slot);
}

const char* Tables::CheckRollouts() const {
  for (uint32_t slot = 0; slot < rollouts_.size(); ++slot) {
    if (!rollouts_.InUse(slot)) continue;
    const RolloutRecord& rollout = rollouts_[slot];
    if (!attempts_.InUse(rollout.attempt) || attempts_[rollout.attempt].rollout != slot) {
      return "a rollout is not its attempt's";
    }
    if (!ValuesHold(rollout)) return "a rollout's value is out of range";
    if (!IsPlain(slot) && !SequencesHold(*sequences_[slot], rollout)) {
      return "a rollout's sequences do not add up";
    }
  }
  return "";
}

const char* Tables::Check() const {
  if (!groups_.FreeListHolds() || !attempts_.FreeListHolds() || !rollouts_.FreeListHolds()) {
    return "a free list is broken";
  }
  uint64_t attempts_seen = 0;
  for (uint32_t slot = 0; slot < groups_.size(); ++slot) {
    if (!groups_.InUse(slot)) continue;
    const char* broken = CheckGroup(slot, &attempts_seen);
    if (broken[0] != '\0') return broken;
  }
  if (attempts_seen != attempts_.used()) return "an attempt belongs to no group";
  return CheckRollouts();
}

}  // namespace forebay::rollout
