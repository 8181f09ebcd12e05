#include "curriculum/sum_tree.h"

#include "base/check.h"

namespace forebay::curriculum {

void SumTree::Append(uint32_t weight) {
  const uint32_t index = size();
  leaves_.Append();
  size_t below = leaves_.size();
  for (size_t level = 0; below > kFanOut; ++level) {
    below = (below + kFanOut - 1) / kFanOut;
    if (level == sums_.size()) AddLevel();
    while (sums_[level].size() < below) sums_[level].Append();
  }
  Set(index, weight);
}

// The level below has kFanOut + 1 entries; only the first kFanOut can be other than 0.
void SumTree::AddLevel() {
  sums_.emplace_back();
  sums_.back().Append() = total_;
}

void SumTree::Set(uint32_t index, uint32_t weight) {
  const uint64_t delta = uint64_t{weight} - leaves_[index];  // modulo 2^64
  leaves_[index] = weight;
  total_ += delta;
  for (auto& level : sums_) {
    index /= kFanOut;
    level[index] += delta;
  }
}

void SumTree::AddUp() {
  const auto sum_up = [](const auto& below, auto& level) {
    for (size_t i = 0; i < level.size(); ++i) level[i] = 0;
    for (size_t i = 0; i < below.size(); ++i) level[i / kFanOut] += below[i];
  };
  for (size_t k = 0; k < sums_.size(); ++k) {
    if (k == 0) {
      sum_up(leaves_, sums_[k]);
    } else {
      sum_up(sums_[k - 1], sums_[k]);
    }
  }
}

uint32_t SumTree::Find(uint64_t point) const {
  FOREBAY_CHECK(point < total_);
  uint32_t index = 0;
  for (size_t level = sums_.size(); level-- > 0;) {
    index *= kFanOut;
    while (point >= sums_[level][index]) point -= sums_[level][index++];
  }
  if (!sums_.empty()) index *= kFanOut;
  while (point >= leaves_[index]) point -= leaves_[index++];
  return index;
}

size_t SumTree::memory_bytes() const {
  size_t bytes = leaves_.memory_bytes();
  for (const auto& level : sums_) bytes += level.memory_bytes();
  return bytes;
}

}  // namespace forebay::curriculum
