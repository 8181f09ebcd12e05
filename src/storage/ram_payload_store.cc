#include "storage/ram_payload_store.h"

#include <utility>

#include "base/check.h"

namespace forebay::storage {
namespace {

// An id: generation (upper half) | slot. Generations of live entries are odd, so no id is 0.
PayloadId MakeId(uint32_t generation, uint64_t slot) {
  return PayloadId((uint64_t{generation} << 32) | slot);
}

}  // namespace

RamPayloadStore::RamPayloadStore(const RamPayloadStoreOptions& options)
    : budget_(PayloadBudget::New(options.bytes_max, options.completion_reserve_bytes)) {}

RamPayloadStore::~RamPayloadStore() {
  std::vector<PayloadId> live;
  {
    MutexLock lock(&mutex_);
    for (uint64_t slot = 0; slot < slots_; ++slot) {
      const Entry& entry = At(slot);
      if (entry.generation % 2 == 1) live.push_back(MakeId(entry.generation, slot));
    }
  }
  Free(live);
}

RamPayloadStore::Entry& RamPayloadStore::At(uint64_t slot) {
  return (*chunks_[slot / kChunk])[slot % kChunk];
}

RamPayloadStore::Entry* RamPayloadStore::Find(PayloadId id) {
  const uint64_t slot = id.value & 0xffffffff;
  const auto generation = static_cast<uint32_t>(id.value >> 32);
  if (slot >= slots_ || generation % 2 == 0) return nullptr;
  Entry& entry = At(slot);
  return entry.generation == generation ? &entry : nullptr;
}

PayloadId RamPayloadStore::Insert(PayloadBuilder& payload) {
  uint64_t slot;
  if (free_ != 0) {
    slot = free_ - 1;
    free_ = At(slot).next_free;
  } else {
    slot = slots_++;
    FOREBAY_CHECK(slot <= 0xffffffff);
    if (slot / kChunk == chunks_.size()) chunks_.push_back(std::make_unique<Chunk>());
  }
  Entry& entry = At(slot);
  entry.bytes = payload.bytes(Part::kHot);
  entry.cold_bytes = payload.bytes(Part::kCold);
  entry.header_bytes = payload.header_bytes();
  ++entry.generation;
  const PayloadBuilder::Blocks blocks = payload.Take();
  if (blocks.hot.size() == 1 && blocks.cold.empty()) {
    entry.block = blocks.hot[0].Release();
  } else {
    entry.blocks = new Block*[blocks.hot.size() + blocks.cold.size()];
    size_t i = 0;
    for (BlockRef& block : blocks.hot) entry.blocks[i++] = block.Release();
    for (BlockRef& block : blocks.cold) entry.blocks[i++] = block.Release();
  }
  ++payloads_;
  payload_bytes_ += entry.bytes + entry.cold_bytes;
  return MakeId(entry.generation, slot);
}

void RamPayloadStore::Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids,
                             Done done) {
  FOREBAY_CHECK(payloads.size() == ids.size());
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < payloads.size(); ++i) ids[i] = Insert(payloads[i]);
  }
  if (done) done(absl::OkStatus());
}

PayloadView RamPayloadStore::Hold(const Entry& entry, Parts parts) {
  PayloadView view(entry.bytes, entry.cold_bytes, entry.header_bytes);
  const size_t count = BlockCount(entry), hot = BlockCount(entry.bytes);
  const auto hold = [&](Part part, size_t begin, size_t end) {
    BlockList list;
    for (size_t i = begin; i < end; ++i) {
      Block* const block = count == 1 ? entry.block : entry.blocks[i];
      block->Ref();
      list.push_back(BlockRef::Adopt(block));
    }
    view.Hold(part, std::move(list));
  };
  hold(Part::kHot, 0, hot);
  if (parts == Parts::kAll && hot < count) hold(Part::kCold, hot, count);
  return view;
}

absl::Status RamPayloadStore::Open(absl::Span<const PayloadId> ids, Parts parts,
                                   std::vector<PayloadView>* out) {
  const size_t before = out->size();
  out->reserve(before + ids.size());
  PayloadId missing;
  {
    MutexLock lock(&mutex_);
    for (const PayloadId id : ids) {
      const Entry* const entry = Find(id);
      if (entry == nullptr) {
        missing = id;
        break;
      }
      out->push_back(Hold(*entry, parts));
    }
  }
  if (out->size() == before + ids.size()) return absl::OkStatus();
  out->resize(before);  // outside the lock: it may be the last reference to a block
  return MissingStatus(missing);
}

void RamPayloadStore::Free(absl::Span<const PayloadId> ids) {
  std::vector<Block*> dead;
  dead.reserve(ids.size());
  {
    MutexLock lock(&mutex_);
    for (const PayloadId id : ids) {
      Entry* const entry = Find(id);
      if (entry == nullptr) continue;
      const size_t count = BlockCount(*entry);
      if (count == 1) {
        dead.push_back(entry->block);
      } else {
        dead.insert(dead.end(), entry->blocks, entry->blocks + count);
        delete[] entry->blocks;
      }
      --payloads_;
      payload_bytes_ -= entry->bytes + entry->cold_bytes;
      ++entry->generation;
      // After 2^31 uses a slot rests for ever: its ids would come again.
      if (entry->generation == 0) continue;
      entry->next_free = free_;
      free_ = (id.value & 0xffffffff) + 1;
    }
  }
  Block::UnrefAll(dead);
}

PayloadUse RamPayloadStore::use() const {
  PayloadUse use;
  use.budget = budget_->use();
  MutexLock lock(&mutex_);
  use.payloads = payloads_;
  use.payload_bytes = payload_bytes_;
  return use;
}

}  // namespace forebay::storage
