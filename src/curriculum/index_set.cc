#include "curriculum/index_set.h"

#include <bit>

namespace forebay::curriculum {

void IndexSet::Resize(uint32_t size) {
  size_ = size;
  size_t words = (size_t{size} + 63) / 64;
  for (size_t level = 0;; ++level) {
    if (level == levels_.size()) {
      auto& added = levels_.emplace_back(words);
      for (size_t i = 0; level > 0 && i < levels_[level - 1].size(); ++i) {
        if (levels_[level - 1][i] != 0) added[i / 64] |= uint64_t{1} << (i % 64);
      }
    } else {
      levels_[level].resize(words);
    }
    if (words <= 1) return;
    words = (words + 63) / 64;
  }
}

bool IndexSet::Insert(uint32_t i) {
  if (Contains(i)) return false;
  ++count_;
  for (auto& level : levels_) {
    uint64_t& word = level[i / 64];
    const bool was_empty = word == 0;
    word |= uint64_t{1} << (i % 64);
    if (!was_empty) break;
    i /= 64;
  }
  return true;
}

bool IndexSet::Erase(uint32_t i) {
  if (!Contains(i)) return false;
  --count_;
  for (auto& level : levels_) {
    uint64_t& word = level[i / 64];
    word &= ~(uint64_t{1} << (i % 64));
    if (word != 0) break;
    i /= 64;
  }
  return true;
}

std::optional<uint32_t> IndexSet::Next(uint32_t from) const {
  if (from >= size_) return std::nullopt;
  uint32_t i = from;
  for (size_t level = 0; level < levels_.size(); ++level) {
    if (i / 64 >= levels_[level].size()) return std::nullopt;
    const uint64_t bits = levels_[level][i / 64] >> (i % 64);
    if (bits != 0) {
      i += std::countr_zero(bits);
      while (level-- > 0) i = i * 64 + std::countr_zero(levels_[level][i]);
      return i;
    }
    i = i / 64 + 1;
  }
  return std::nullopt;
}

size_t IndexSet::memory_bytes() const {
  size_t bytes = 0;
  for (const auto& level : levels_) bytes += level.capacity() * sizeof(uint64_t);
  return bytes;
}

}  // namespace forebay::curriculum
