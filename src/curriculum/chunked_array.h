// An array that grows by chunks: growing never moves what is there, so no append is slow.
//
// New elements are value-initialised. Not thread-safe. Indexes are not checked: callers stay below
// size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace forebay::curriculum {

template <class T, size_t kChunkSize>
class ChunkedArray {
  static_assert((kChunkSize & (kChunkSize - 1)) == 0, "an index splits into chunk and offset");

 public:
  size_t size() const { return size_; }
  T& operator[](size_t i) { return chunks_[i / kChunkSize][i % kChunkSize]; }
  const T& operator[](size_t i) const { return chunks_[i / kChunkSize][i % kChunkSize]; }

  T& Append() {
    if (size_ % kChunkSize == 0) chunks_.push_back(std::make_unique<T[]>(kChunkSize));
    return (*this)[size_++];
  }

  size_t memory_bytes() const {
    return chunks_.size() * kChunkSize * sizeof(T) + chunks_.capacity() * sizeof(chunks_[0]);
  }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
  size_t size_ = 0;
};

}  // namespace forebay::curriculum
