// Attempts, groups and rollouts, and the moves between their states. Which move is right is for the
// shard to decide.
//
// Replicated state: the same calls give the same slots and ids on every replica. Not thread-safe.
// Slots that a call takes are in use; references live until the next Add of the same table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "codec/archive.h"
#include "codec/copy_on_write_array.h"
#include "rollout/records.h"
#include "rollout/sequence.h"
#include "rollout/slot_table.h"

namespace forebay::rollout {

// Groups in the order of their state, and groups that have pending attempts.
using OrderList = LinkList<GroupRecord, &GroupRecord::order>;
using WaitingList = LinkList<GroupRecord, &GroupRecord::waiting>;

inline constexpr uint32_t kAttemptsPerGroupMax = 4096;

class Tables {
 public:
  explicit Tables(ShardId shard) : shard_(shard) {}

  ShardId shard() const { return shard_; }
  const SlotTable<GroupRecord>& groups() const { return groups_; }
  SlotTable<GroupRecord>& groups() { return groups_; }
  const SlotTable<AttemptRecord>& attempts() const { return attempts_; }
  const SlotTable<RolloutRecord>& rollouts() const { return rollouts_; }
  GroupRecord& group(uint32_t slot) { return groups_[slot]; }
  AttemptRecord& attempt(uint32_t slot) { return attempts_[slot]; }
  RolloutRecord& rollout(uint32_t slot) { return rollouts_[slot]; }
  const GroupRecord& group(uint32_t slot) const { return groups_[slot]; }
  const AttemptRecord& attempt(uint32_t slot) const { return attempts_[slot]; }
  const RolloutRecord& rollout(uint32_t slot) const { return rollouts_[slot]; }

  GroupId IdOfGroup(uint32_t slot) const {
    return GroupId::Make(shard_, groups_.Generation(slot), slot);
  }
  AttemptId IdOfAttempt(uint32_t slot) const {
    return AttemptId::Make(shard_, attempts_.Generation(slot), slot);
  }
  RolloutId IdOfRollout(uint32_t slot) const {
    return RolloutId::Make(shard_, rollouts_.Generation(slot), slot);
  }
  // kNone: there is none of that id (any more).
  uint32_t Find(GroupId id) const { return groups_.Find(shard_, id); }
  uint32_t Find(AttemptId id) const { return attempts_.Find(shard_, id); }
  uint32_t Find(RolloutId id) const { return rollouts_.Find(shard_, id); }

  // An open group whose attempts, numbered from 0, are all pending. 1 <= attempts <=
  // kAttemptsPerGroupMax.
  uint32_t AddGroup(TaskId task, uint32_t attempts, uint64_t sequence);
  // Frees a closed group and its attempts; it holds no rollouts and is in no list.
  void RemoveGroup(uint32_t group);

  // Hands out the group's first pending attempt under a new token, and returns it. The group has
  // one.
  uint32_t Lease(uint32_t group, uint32_t session, uint32_t version);
  // To the front of its group's pending attempts, from kLeased or kDone.
  void MakePending(uint32_t attempt);
  // From kLeased or kPending to kDone or kClosed.
  void Settle(uint32_t attempt, AttemptState state);

  // The rollout of an attempt, with what `sequences` say; those without runs are of version
  // `assigned`. At least one sequence, and no more than UINT32_MAX tokens in all. Counts in its
  // group as (un)rewarded.
  uint32_t AddRollout(uint32_t attempt, std::span<const SequenceMeta> sequences,
                      PolicyVersion assigned, bool rewarded);
  void SetRewarded(uint32_t rollout);
  // Its attempt stays as it is.
  void RemoveRollout(uint32_t rollout);
  // One sequence without version runs and advantage: all is in the record.
  bool IsPlain(uint32_t rollout) const { return sequences_[rollout]->empty(); }
  // The rollout's sequences; `scratch` holds the one that is not stored as such.
  std::span<const SequenceMeta> Sequences(uint32_t rollout, SequenceMeta* scratch) const;

  // Calls `visit(attempt slot)` for all attempts of a group by number; visit may settle the
  // attempt.
  template <class Visit>
  void ForEachAttempt(uint32_t group, Visit visit) const {
    for (uint32_t a = groups_[group].first_attempt; a != kNone;) {
      const uint32_t next = attempts_[a].next;
      visit(a);
      a = next;
    }
  }
  // Calls `visit(rollout slot)` for the rollouts that a group holds, by attempt number; visit may
  // remove the rollout.
  template <class Visit>
  void ForEachRollout(uint32_t group, Visit visit) const {
    ForEachAttempt(group, [&](uint32_t a) {
      if (attempts_[a].rollout != kNone) visit(attempts_[a].rollout);
    });
  }

  void Snapshot(codec::Writer& writer) const;
  // False when the records do not fit together; see Check.
  bool Restore(codec::Reader& reader);
  // "" when records name each other as they should, all counts are right and all values are in
  // range. Safe on any content.
  const char* Check() const;
  uint64_t memory_bytes() const;

 private:
  void RemovePending(GroupRecord& group, uint32_t attempt);
  // What a rollout has beside its record, none if it is plain; null in a free slot. Never changed,
  // so that a table that is copied for a snapshot costs no copy of them.
  using SequencesRef = std::shared_ptr<const std::vector<SequenceMeta>>;
  static SequencesRef NoSequences();
  static SequencesRef WithVersions(std::span<const SequenceMeta> sequences, PolicyVersion assigned);
  void SetSequences(uint32_t rollout, SequencesRef sequences);
  const char* CheckGroup(uint32_t group, uint64_t* attempts_seen) const;
  const char* CheckPending(uint32_t group) const;
  const char* CheckRollouts() const;

  ShardId shard_;
  SlotTable<GroupRecord> groups_;
  SlotTable<AttemptRecord> attempts_;
  SlotTable<RolloutRecord> rollouts_;
  codec::CopyOnWriteArray<SequencesRef, 256> sequences_;  // by slot of the rollout
  uint64_t sequence_bytes_ = 0;                           // of what sequences_ names
};

}  // namespace forebay::rollout
