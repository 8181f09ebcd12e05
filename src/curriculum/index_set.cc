#include "curriculum/index_set.h"

#include <bit>
#include <span>
#include <utility>

#include "base/check.h"

namespace forebay::curriculum {
namespace {

// True if it was the first one of the word.
bool Set(uint64_t& word, uint32_t bit) {
  return std::exchange(word, word | uint64_t{1} << bit) == 0;
}

// True if it was the last one of the word.
bool Clear(uint64_t& word, uint32_t bit) { return (word &= ~(uint64_t{1} << bit)) == 0; }

}  // namespace

void IndexSet::Resize(uint32_t size) {
  size_ = size;
  while (words_.size() < (size_t{size} + 63) / 64) words_.Append();
  for (size_t level = 1; WordsOf(level - 1) > 1; ++level) {
    const size_t words = (WordsOf(level - 1) + 63) / 64;
    if (level < levels()) {
      summaries_[level - 1].resize(words);
      continue;
    }
    Level added(words);
    for (size_t i = 0; i < WordsOf(level - 1); ++i) {
      if (Word(level - 1, i) != 0) added[i / 64] |= uint64_t{1} << (i % 64);
    }
    summaries_.push_back(std::move(added));
  }
}

void IndexSet::CopyFrom(const IndexSet& other) {
  FOREBAY_CHECK(size_ == other.size_);
  for (size_t i = 0; i < words_.size(); ++i) words_[i] = other.words_[i];
  summaries_ = other.summaries_;
  count_ = other.count_;
}

bool IndexSet::Insert(uint32_t i) {
  if (Contains(i)) return false;
  ++count_;
  bool was_empty = Set(words_[i / 64], i % 64);
  for (size_t k = 0; was_empty && k < summaries_.size(); ++k) {
    i /= 64;
    was_empty = Set(summaries_[k][i / 64], i % 64);
  }
  return true;
}

bool IndexSet::Erase(uint32_t i) {
  if (!Contains(i)) return false;
  --count_;
  bool is_empty = Clear(words_[i / 64], i % 64);
  for (size_t k = 0; is_empty && k < summaries_.size(); ++k) {
    i /= 64;
    is_empty = Clear(summaries_[k][i / 64], i % 64);
  }
  return true;
}

std::optional<uint32_t> IndexSet::Next(uint32_t from) const {
  if (from >= size_) return std::nullopt;
  uint32_t i = from;
  for (size_t level = 0; level < levels(); ++level) {
    if (i / 64 >= WordsOf(level)) return std::nullopt;
    const uint64_t bits = Word(level, i / 64) >> (i % 64);
    if (bits != 0) {
      i += std::countr_zero(bits);
      while (level-- > 0) i = i * 64 + std::countr_zero(Word(level, i));
      return i;
    }
    i = i / 64 + 1;
  }
  return std::nullopt;
}

void IndexSet::Snapshot(codec::Writer& writer) const {
  words_.Snapshot(writer, [](codec::Writer& to, std::span<const uint64_t> words) {
    to.Bytes(words.data(), words.size_bytes());
  });
}

size_t IndexSet::memory_bytes() const {
  size_t bytes = words_.memory_bytes();
  for (const Level& level : summaries_) bytes += level.capacity() * sizeof(uint64_t);
  return bytes;
}

}  // namespace forebay::curriculum
