#include "storage/block.h"

#include <cstdlib>
#include <new>

#include "base/check.h"
#include "storage/payload_budget.h"

// jemalloc reads its settings from this symbol. Payload memory is bounded by its budget and used
// again at once, so pages are kept (returning and faulting them again took four times the CPU of
// the copy into them), and they are huge where the kernel has huge ones. A thread keeps what it
// frees up to 128 KiB for itself: lists of a frame's rollouts and pieces of the network's are of
// that size. Without jemalloc nobody reads it.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1,tcache_max:131072";
}

namespace forebay::storage {

// A large block's head lies apart, so that its bytes can begin a page; a small block is one piece.
Block* Block::New(size_t bytes, PayloadBudget* budget) {
  FOREBAY_CHECK(bytes > 0 && bytes <= kBytesMax);
  budget->BlockMade();
  const auto size = static_cast<uint32_t>(bytes);
  if (bytes >= kPagedBytes) {
    char* const data = budget->TakePages(bytes);
    void* const head = std::malloc(sizeof(Block));
    FOREBAY_CHECK(head != nullptr);
    return new (head) Block(data, size, budget);
  }
  void* memory = std::malloc(RoundUp(sizeof(Block) + bytes, kSmallAlignment));
  FOREBAY_CHECK(memory != nullptr);
  return new (memory) Block(static_cast<char*>(memory) + sizeof(Block), size, budget);
}

void Block::FreeMemory() {
  if (size_ >= kPagedBytes) budget_->pages_.Give(data_, size_);
  std::free(this);
}

void Block::Delete() {
  PayloadBudget* const budget = budget_;
  const uint64_t footprint = Footprint(size_);
  FreeMemory();
  budget->BlocksGone(1, footprint);
}

void Block::UnrefAll(absl::Span<Block* const> blocks) {
  PayloadBudget* budget = nullptr;
  uint64_t gone = 0;
  uint64_t footprint = 0;
  for (Block* const block : blocks) {
    if (!block->DropReference()) continue;
    budget = block->budget_;
    footprint += Footprint(block->size_);
    ++gone;
    block->FreeMemory();
  }
  if (gone > 0) budget->BlocksGone(gone, footprint);
}

}  // namespace forebay::storage
