#include "storage/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace forebay::storage {

size_t PagePool::ClassOf(size_t size) {
  const size_t power = std::bit_floor(size);
  const auto octave = static_cast<size_t>(std::countr_zero(power / kBytesMin));
  return octave * 16 + (size - power) / (power / 16);
}

char* PagePool::TakeFreed(size_t bytes) {
  const size_t size = SizeOf(bytes);
  MutexLock lock(&mutex_);
  auto& list = free_[ClassOf(size)];
  if (list.empty()) return nullptr;
  char* const data = list.back();
  list.pop_back();
  free_bytes_ -= size;
  return data;
}

char* PagePool::Take(size_t bytes) {
  if (char* const data = TakeFreed(bytes); data != nullptr) return data;
  void* const data = std::aligned_alloc(kPageBytes, SizeOf(bytes));
  FOREBAY_CHECK(data != nullptr);
  return static_cast<char*>(data);
}

void PagePool::Give(char* data, size_t bytes) {
  const size_t size = SizeOf(bytes);
  MutexLock lock(&mutex_);
  free_[ClassOf(size)].push_back(data);
  free_bytes_ += size;
}

// The allocator keeps the addresses, and need not know that the pages are gone.
void PagePool::Release(char* data, size_t size) {
  madvise(data, size, MADV_DONTNEED);
  std::free(data);
}

void PagePool::Trim(uint64_t bytes) {
  std::vector<std::pair<char*, size_t>> released;
  {
    MutexLock lock(&mutex_);
    uint64_t left = bytes;
    // Round and round, so that no class is emptied for the others' sake.
    for (size_t empty = 0; left > 0 && empty < kClasses; trimmed_ = (trimmed_ + 1) % kClasses) {
      auto& list = free_[trimmed_];
      if (list.empty()) {
        ++empty;
        continue;
      }
      empty = 0;
      const size_t power = kBytesMin << (trimmed_ / 16);
      const size_t size = power + power / 16 * (trimmed_ % 16);
      released.emplace_back(list.back(), size);
      list.pop_back();
      free_bytes_ -= size;
      left -= std::min<uint64_t>(left, size);
    }
  }
  for (const auto& [data, size] : released) Release(data, size);
}

}  // namespace forebay::storage
