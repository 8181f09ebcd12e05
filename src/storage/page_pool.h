// Keeps the memory of large blocks that were freed for those that come next, whichever thread frees
// and whichever allocates.
//
// A general allocator keeps what a thread frees for that thread: payloads that one thread writes
// and another reads back would take the budget several times over, and most of the time would go
// into clearing fresh pages. Memory is taken in sizes of sixteen steps between powers of two.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"

namespace forebay::storage {

class PagePool {
 public:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kBytesMin = 64 * 1024;
  static constexpr size_t kBytesMax = size_t{4} << 20;

  ~PagePool() { Trim(UINT64_MAX); }

  // What `bytes` bytes take, at most a sixteenth more.
  static constexpr size_t SizeOf(size_t bytes) {
    const size_t step = std::bit_floor(bytes - 1 < kBytesMin ? kBytesMin : bytes - 1) / 16;
    return (bytes + step - 1) / step * step;
  }

  // Memory of SizeOf(bytes), of which nothing is known; at a page's beginning. `bytes` from
  // kBytesMin to kBytesMax.
  char* Take(size_t bytes);
  // Null if there is none that was freed.
  char* TakeFreed(size_t bytes);
  void Give(char* data, size_t bytes);
  // Gives so many bytes, or a little more, back to the system, if there are.
  void Trim(uint64_t bytes);
  // Kept for the next.
  uint64_t free_bytes() const { return free_bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kClasses = 6 * 16 + 1;  // of six powers of two, and the last
  static size_t ClassOf(size_t size);
  static void Release(char* data, size_t size);

  std::atomic<uint64_t> free_bytes_{0};
  Mutex mutex_;
  std::array<std::vector<char*>, kClasses> free_ ABSL_GUARDED_BY(mutex_);
  size_t trimmed_ ABSL_GUARDED_BY(mutex_) = 0;  // the class that was trimmed last
};

}  // namespace forebay::storage
