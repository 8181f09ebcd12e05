// A set of dense indexes as a bitmap of bitmaps: test, insert and erase in O(1), the next member in
// O(log n / 6).
//
// Not thread-safe. Indexes of Insert, Erase and Contains lie below size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "codec/copy_on_write_array.h"

namespace forebay::curriculum {

class IndexSet {
 public:
  // Grows the range of possible members to [0, size).
  void Resize(uint32_t size);
  uint32_t size() const { return size_; }
  uint32_t count() const { return count_; }

  bool Contains(uint32_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  // Takes the members of `other`, which has the same size.
  void CopyFrom(const IndexSet& other);
  // True when the set changed.
  bool Insert(uint32_t i);
  bool Erase(uint32_t i);
  // The smallest member that is >= from.
  std::optional<uint32_t> Next(uint32_t from) const;

  // Members 64 * i to 64 * i + 63 as bits; i < words().
  uint64_t word(size_t i) const { return words_[i]; }
  size_t words() const { return words_.size(); }

  // All words in their order.
  void Snapshot(codec::Writer& writer) const;
  size_t memory_bytes() const;

 private:
  static constexpr size_t kChunkWords = 512;
  using Level = std::vector<uint64_t>;

  uint64_t Word(size_t level, size_t i) const {
    return level == 0 ? words_[i] : summaries_[level - 1][i];
  }
  size_t levels() const { return 1 + summaries_.size(); }
  size_t WordsOf(size_t level) const {
    return level == 0 ? words_.size() : summaries_[level - 1].size();
  }

  codec::CopyOnWriteArray<uint64_t, kChunkWords> words_;  // a bit an index
  // A bit of the first tells that a word of words_ is not 0, one of the next that a word of the
  // one before is not.
  std::vector<Level> summaries_;
  uint32_t size_ = 0;
  uint32_t count_ = 0;
};

}  // namespace forebay::curriculum
