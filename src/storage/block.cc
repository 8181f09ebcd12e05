#include "storage/block.h"

#include <cstdlib>
#include <new>

#include "base/check.h"
#include "storage/payload_budget.h"

namespace forebay::storage {

// A large block's head lies apart, so that its bytes can begin a page; a small block is one piece.
Block* Block::New(size_t bytes, PayloadBudget* budget) {
  FOREBAY_CHECK(bytes > 0 && bytes <= kBytesMax);
  budget->BlockMade();
  const auto size = static_cast<uint32_t>(bytes);
  if (bytes >= kPagedBytes) {
    void* data = std::aligned_alloc(kPageBytes, RoundUp(bytes, kPageBytes));
    void* head = std::malloc(sizeof(Block));
    FOREBAY_CHECK(data != nullptr && head != nullptr);
    return new (head) Block(static_cast<char*>(data), size, budget);
  }
  void* memory = std::aligned_alloc(kSmallAlignment, RoundUp(sizeof(Block) + bytes, kSmallAlignment));
  FOREBAY_CHECK(memory != nullptr);
  return new (memory) Block(static_cast<char*>(memory) + sizeof(Block), size, budget);
}

void Block::Delete() {
  PayloadBudget* const budget = budget_;
  const uint64_t footprint = Footprint(size_);
  if (size_ >= kPagedBytes) std::free(data_);
  std::free(this);
  budget->BlockGone(footprint);
}

}  // namespace forebay::storage
