// Weighted draw over dense indexes in O(log n): whole-number weights, and their sums by 16 in
// levels.
//
// The sums are exact, so equal sequences of calls give equal draws everywhere. Not thread-safe.
// Indexes lie below size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "curriculum/chunked_array.h"

namespace forebay::curriculum {

class SumTree {
 public:
  void Append(uint32_t weight);
  void Set(uint32_t index, uint32_t weight);
  // Sets all; cheaper than one after another.
  template <class WeightOf>
  void SetAll(WeightOf weight_of) {
    total_ = 0;
    for (uint32_t i = 0; i < size(); ++i) total_ += leaves_[i] = weight_of(i);
    AddUp();
  }
  uint32_t size() const { return static_cast<uint32_t>(leaves_.size()); }
  uint32_t weight(uint32_t index) const { return leaves_[index]; }
  uint64_t total() const { return total_; }
  // The index whose share of [0, total) holds `point`; point < total().
  uint32_t Find(uint64_t point) const;
  size_t memory_bytes() const;

 private:
  void AddLevel();
  void AddUp();

  static constexpr uint32_t kFanOut = 16;
  ChunkedArray<uint32_t, 1024> leaves_;
  std::vector<ChunkedArray<uint64_t, 256>> sums_;  // sums_[k][i] covers 16^(k+1) leaves
  uint64_t total_ = 0;
};

}  // namespace forebay::curriculum
