// A keyed permutation of [0, size) without memory: a Feistel network over the next power of two,
// with cycle walking.
//
// A value; safe from any thread. At(i) costs at most two passes on average.
#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"
#include "base/prng.h"

namespace forebay::curriculum {

class Permutation {
 public:
  Permutation(uint64_t key, uint32_t size) : key_(key), size_(size) {
    const int bits = size <= 1 ? 0 : std::bit_width(size - 1);
    rounds_ = bits < 10 ? 8 : 3;  // few bits mix slowly: a test of uniformity sees fewer rounds
    low_bits_ = bits / 2;
    low_mask_ = (uint64_t{1} << low_bits_) - 1;
    high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  }

  // i < size.
  uint32_t At(uint32_t i) const {
    FOREBAY_CHECK(i < size_);
    uint64_t value = i;
    do {
      value = Pass(value);
    } while (value >= size_);  // ends: the walk is on a cycle that holds i
    return static_cast<uint32_t>(value);
  }

 private:
  uint64_t Pass(uint64_t value) const {
    uint64_t low = value & low_mask_;
    uint64_t high = value >> low_bits_;
    for (uint64_t round = 0; round < rounds_; ++round) {
      high ^= Mix64(key_ + (low << 8 | round << 1)) & high_mask_;
      low ^= Mix64(key_ + (high << 8 | round << 1 | 1)) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  uint64_t key_;
  uint32_t size_;
  uint64_t rounds_;
  int low_bits_;
  uint64_t low_mask_;
  uint64_t high_mask_;
};

}  // namespace forebay::curriculum
