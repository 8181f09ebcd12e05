// Rollouts of committed steps that stay for people to look at: a sample, and those that are
// flagged.
//
// Replicated state; not thread-safe. Their groups and attempts are closed: what lists show of a
// rollout is copied here, under the id that it had. The oldest go first, when there are more than
// kKeptMax or than the rule's bytes. Payloads that go are appended to `dead`.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "codec/archive.h"
#include "codec/keep_rule.h"
#include "rollout/records.h"

namespace forebay::shard {

struct KeptRecord {
  uint32_t slot_state = 0;
  uint32_t link = rollout::kNone;
  rollout::Link order;
  RolloutId rollout;
  GroupId group;
  AttemptId attempt;
  TaskId task;
  StepId step;
  PayloadId payload;
  uint64_t payload_bytes = 0;
  double reward = 0;
  float advantage = 0;
  uint32_t tokens = 0;
  uint32_t loss_tokens = 0;
  PolicyVersion version;
  rollout::RolloutStatus status = rollout::RolloutStatus::kFinished;
  bool rewarded = false;

  template <class A>
  void Fields(A& a) {
    a(slot_state, link, order, rollout, group, attempt, task, step, payload, payload_bytes, reward,
      advantage, tokens, loss_tokens, version, status, rewarded);
  }
};
static_assert(sizeof(KeptRecord) <= 128, "a shard keeps up to kKeptMax of them");

// Whether the rule takes a rollout whose bytes are there. The same run's sample is the same
// whenever it is drawn.
bool Takes(const codec::KeepRule& rule, uint64_t run_seed, const KeptRecord& record);

class KeptRollouts {
 public:
  using Dead = std::vector<PayloadId>;

  // As the newest; links and slot_state are set here. Ids come again after a long time: an older
  // one of the same id goes.
  void Add(const KeptRecord& record, Dead* dead);
  void Trim(const codec::KeepRule& rule, Dead* dead);
  void Drop(uint32_t slot, Dead* dead);
  // Those whose payload is one of these, sorted; how many. Walks all.
  uint64_t Drop(const std::vector<PayloadId>& payloads, Dead* dead);

  // kNone: there is none.
  uint32_t Find(RolloutId rollout) const;
  const rollout::SlotTable<KeptRecord>& table() const { return table_; }
  uint64_t size() const { return order_.size(); }
  uint64_t payload_bytes() const { return payload_bytes_; }
  uint64_t memory_bytes() const;

  void Snapshot(codec::Writer& writer) const;
  // What records hold is for Check.
  bool Restore(codec::Reader& reader);
  // "" if all is as it should be. Safe on any content.
  const char* Check(ShardId shard) const;

 private:
  using Order = rollout::LinkList<KeptRecord, &KeptRecord::order>;

  rollout::SlotTable<KeptRecord> table_;
  Order order_;  // oldest first
  uint64_t payload_bytes_ = 0;
  absl::flat_hash_map<RolloutId, uint32_t> slots_;  // the same; never iterated
};

}  // namespace forebay::shard
