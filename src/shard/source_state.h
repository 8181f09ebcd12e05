// What a shard keeps of one source besides its tasks: groups by state, the queue of ready ones,
// counters.
//
// Replicated state; not thread-safe. Slots are those of groups in rollout::Tables.
#pragma once

#include <cstdint>
#include <vector>

#include "rollout/tables.h"
#include "shard/counters.h"

namespace forebay::shard {

using rollout::kNone;
using GroupTable = rollout::SlotTable<rollout::GroupRecord>;

// Groups with attempts to hand out: those that came back first, then those that were never out.
struct HandOutQueue {
  rollout::WaitingList retry;
  rollout::WaitingList fresh;

  bool empty() const { return retry.empty() && fresh.empty(); }
  uint32_t front() const { return retry.empty() ? fresh.head() : retry.head(); }
  // Where a group with pending attempts belongs, and nowhere else.
  void PushFresh(GroupTable& groups, uint32_t slot);
  void PushRetry(GroupTable& groups, uint32_t slot);
  void Remove(GroupTable& groups, uint32_t slot);

  template <class A>
  void Fields(A& a) {
    a(retry, fresh);
  }
};

// Ready groups, oldest version first, then in order of completion.
class ReadyQueue {
 public:
  struct Bucket {
    uint32_t version = 0;
    rollout::OrderList groups;
    template <class A>
    void Fields(A& a) {
      a(version, groups);
    }
  };

  // By the group's version and sequence.
  void Insert(GroupTable& groups, uint32_t slot);
  void Remove(GroupTable& groups, uint32_t slot);
  // kNone: empty.
  uint32_t front() const { return buckets_.empty() ? kNone : buckets_.front().groups.head(); }
  // By rising version; none is empty.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  uint64_t size() const { return size_; }
  uint64_t tokens() const { return tokens_; }

  template <class A>
  void Fields(A& a) {
    a(buckets_, size_, tokens_);
  }

 private:
  std::vector<Bucket> buckets_;
  uint64_t size_ = 0;
  uint64_t tokens_ = 0;
};

// Leases by the version they were handed out for; few versions are out at a time.
class LeasedVersions {
 public:
  void Add(uint32_t version);
  void Remove(uint32_t version);
  uint64_t total() const { return total_; }
  uint64_t CountOf(uint32_t version) const;
  bool Holds() const;  // the counts add up
  template <class A>
  void Fields(A& a) {
    a(counts_, total_);
  }

 private:
  std::vector<std::pair<uint32_t, uint64_t>> counts_;  // by rising version; no zeros
  uint64_t total_ = 0;
};

struct SourceState {
  SourceCounters counters;
  rollout::OrderList open;  // by age
  HandOutQueue queue;       // of a train source
  ReadyQueue ready;
  LeasedVersions leased;
  uint64_t reserved_groups = 0;
  uint64_t unfinished = 0;   // attempts pending or leased in open groups ...
  uint64_t held_back = 0;    // ... of which nobody gets these before their groups were screened
  uint64_t outstanding = 0;  // rollouts that admission counts
  double payload_mean = 0;   // bytes of a rollout, decayed by 1/64 a rollout; 0: not measured

  template <class A>
  void Fields(A& a) {
    a(counters, open, queue, ready, leased, reserved_groups, unfinished, held_back, outstanding,
      payload_mean);
  }
};

}  // namespace forebay::shard
