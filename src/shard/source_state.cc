#include "shard/source_state.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::shard {

using rollout::GroupRecord;
using rollout::OrderList;

void HandOutQueue::PushFresh(GroupTable& groups, uint32_t slot) {
  fresh.PushBack(groups, slot);
  groups[slot].flags |= GroupRecord::kFresh;
}

void HandOutQueue::PushRetry(GroupTable& groups, uint32_t slot) {
  if (groups[slot].flags & GroupRecord::kRetry) return;
  Remove(groups, slot);
  retry.PushBack(groups, slot);
  groups[slot].flags |= GroupRecord::kRetry;
}

void HandOutQueue::Remove(GroupTable& groups, uint32_t slot) {
  uint8_t& flags = groups[slot].flags;
  if (flags & GroupRecord::kRetry) retry.Remove(groups, slot);
  if (flags & GroupRecord::kFresh) fresh.Remove(groups, slot);
  flags &= ~(GroupRecord::kRetry | GroupRecord::kFresh);
}

void ReadyQueue::Insert(GroupTable& groups, uint32_t slot) {
  const GroupRecord& group = groups[slot];
  auto bucket =
      std::lower_bound(buckets_.begin(), buckets_.end(), group.version,
                       [](const Bucket& b, uint32_t version) { return b.version < version; });
  if (bucket == buckets_.end() || bucket->version != group.version) {
    bucket = buckets_.insert(bucket, Bucket{group.version, {}});
  }
  // New groups go to the end, and those that a step gives back near the front.
  OrderList& list = bucket->groups;
  uint32_t position = kNone;
  if (!list.empty() && groups[list.tail()].sequence > group.sequence) {
    position = list.head();
    while (groups[position].sequence < group.sequence) position = OrderList::Next(groups, position);
  }
  list.InsertBefore(groups, slot, position);
  ++size_;
  tokens_ += group.tokens;
}

void ReadyQueue::Remove(GroupTable& groups, uint32_t slot) {
  const auto bucket =
      std::lower_bound(buckets_.begin(), buckets_.end(), groups[slot].version,
                       [](const Bucket& b, uint32_t version) { return b.version < version; });
  FOREBAY_CHECK(bucket != buckets_.end() && bucket->version == groups[slot].version);
  bucket->groups.Remove(groups, slot);
  if (bucket->groups.empty()) buckets_.erase(bucket);
  --size_;
  tokens_ -= groups[slot].tokens;
}

void LeasedVersions::Add(uint32_t version) {
  ++total_;
  if (!counts_.empty() && counts_.back().first == version) {
    ++counts_.back().second;
    return;
  }
  const auto at = std::lower_bound(counts_.begin(), counts_.end(), std::pair{version, uint64_t{0}});
  if (at != counts_.end() && at->first == version) {
    ++at->second;
  } else {
    counts_.insert(at, {version, 1});
  }
}

void LeasedVersions::Remove(uint32_t version) {
  const auto at = std::lower_bound(counts_.begin(), counts_.end(), std::pair{version, uint64_t{0}});
  FOREBAY_CHECK(at != counts_.end() && at->first == version);
  --total_;
  if (--at->second == 0) counts_.erase(at);
}

uint64_t LeasedVersions::CountOf(uint32_t version) const {
  const auto at = std::lower_bound(counts_.begin(), counts_.end(), std::pair{version, uint64_t{0}});
  return at != counts_.end() && at->first == version ? at->second : 0;
}

bool LeasedVersions::Holds() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i].second == 0 || (i > 0 && counts_[i - 1].first >= counts_[i].first)) return false;
    sum += counts_[i].second;
  }
  return sum == total_;
}

}  // namespace forebay::shard
