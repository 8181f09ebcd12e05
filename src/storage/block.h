// A piece of aligned memory that holds payload bytes: written by one owner, then immutable and
// shared by reference count.
//
// The count is atomic: references may be made and dropped by any thread. Bytes may be written only
// while there is one reference. A block's footprint counts in its budget until the last reference
// is gone, and the budget outlives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "storage/page_pool.h"

namespace forebay::storage {

class PayloadBudget;

class Block {
 public:
  // Small blocks have their bytes behind this head, in pieces of this; from kPagedBytes on bytes
  // begin a page.
  static constexpr size_t kSmallAlignment = 64;
  static constexpr size_t kPageBytes = PagePool::kPageBytes;
  static constexpr size_t kPagedBytes = PagePool::kBytesMin;
  static constexpr size_t kBytesMax = PagePool::kBytesMax;

  // What a block of `bytes` bytes takes from the budget, its head included.
  static constexpr uint64_t Footprint(size_t bytes) {
    if (bytes >= kPagedBytes) return PagePool::SizeOf(bytes) + kSmallAlignment;
    return RoundUp(sizeof(Block) + bytes, kSmallAlignment);
  }

  // 1 to kBytesMax bytes, not initialised. Its footprint is taken out of a reservation in the
  // budget.
  static Block* New(size_t bytes, PayloadBudget* budget);

  char* data() const { return data_; }
  size_t size() const { return size_; }

  // Whether the caller's reference is the only one.
  bool unshared() const { return references_.load(std::memory_order_acquire) == 1; }
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (DropReference()) Delete();
  }
  // Unref of each, with one visit to the budget, which is the same for all.
  static void UnrefAll(absl::Span<Block* const> blocks);

 private:
  static constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
  }
  Block(char* data, uint32_t size, PayloadBudget* budget)
      : size_(size), data_(data), budget_(budget) {}
  // True if it was the last one.
  bool DropReference() {
    return references_.load(std::memory_order_acquire) == 1 ||
           references_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  void Delete();
  // Gives the memory back, not its place in the budget.
  void FreeMemory();

  std::atomic<uint32_t> references_{1};
  const uint32_t size_;
  char* const data_;
  PayloadBudget* const budget_;
};

// One reference to a block.
class BlockRef {
 public:
  BlockRef() = default;
  // Takes over a reference that is there already.
  static BlockRef Adopt(Block* block) { return BlockRef(block); }
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) block_->Ref();
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef() {
    if (block_ != nullptr) block_->Unref();
  }
  Block* get() const { return block_; }
  Block* operator->() const { return block_; }
  explicit operator bool() const { return block_ != nullptr; }
  // The caller owns the reference from here on.
  Block* Release() { return std::exchange(block_, nullptr); }

 private:
  explicit BlockRef(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

}  // namespace forebay::storage
