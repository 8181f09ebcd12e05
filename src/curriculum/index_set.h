// A set of dense indexes as a bitmap of bitmaps: test, insert and erase in O(1), the next member in
// O(log n / 6).
//
// Not thread-safe. Indexes of Insert, Erase and Contains lie below size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace forebay::curriculum {

class IndexSet {
 public:
  // Grows the range of possible members to [0, size).
  void Resize(uint32_t size);
  uint32_t size() const { return size_; }
  uint32_t count() const { return count_; }

  bool Contains(uint32_t i) const { return levels_[0][i / 64] >> (i % 64) & 1; }
  // True when the set changed.
  bool Insert(uint32_t i);
  bool Erase(uint32_t i);
  // The smallest member that is >= from.
  std::optional<uint32_t> Next(uint32_t from) const;

  // Members 64 * i to 64 * i + 63 as bits; i < words().
  uint64_t word(size_t i) const { return levels_[0][i]; }
  const uint64_t* data() const { return levels_[0].data(); }  // words() > 0
  size_t words() const { return (size_t{size_} + 63) / 64; }

  size_t memory_bytes() const;

 private:
  // levels_[0] has a bit an index; a bit of levels_[k + 1] tells that a word of levels_[k] is not
  // 0.
  std::vector<std::vector<uint64_t>> levels_;
  uint32_t size_ = 0;
  uint32_t count_ = 0;
};

}  // namespace forebay::curriculum
