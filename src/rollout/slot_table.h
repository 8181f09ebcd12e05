// Records by dense slot numbers, in chunks (codec/copy_on_write_array.h), with a free list and a
// generation for each slot.
//
// T is a plain record with `uint32_t slot_state` (kept by the table: generation x 2 + 1 while in
// use) and `uint32_t link` (the table's while the slot is free, the owner's while in use), and
// Fields. A growing table allocates one chunk and copies nothing. Not thread-safe. Slots are handed
// out in the same order on every replica. Generations begin with 1, so that no id is ever 0, which
// means "none" on the wire.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/ids.h"
#include "codec/archive.h"
#include "codec/copy_on_write_array.h"

namespace forebay::rollout {

// No slot.
inline constexpr uint32_t kNone = UINT32_MAX;

template <class T>
class SlotTable {
 public:
  static constexpr uint32_t kChunk = 256;
  static constexpr uint32_t kSlotsMax = 1u << 31;

  // The slot of a fresh record.
  uint32_t Add() {
    uint32_t slot = free_;
    if (slot != kNone) {
      free_ = (*this)[slot].link;
    } else {
      FOREBAY_CHECK(size() < kSlotsMax);
      slot = size();
      records_.Append();
    }
    T& record = (*this)[slot];
    const uint32_t generation = std::max(GenerationOf(record), 1u);
    record = T{};
    record.slot_state = generation << 1 | 1;
    ++used_;
    return slot;
  }

  // Frees the slot; ids of its old generation find nothing any more.
  void Remove(uint32_t slot) {
    T& record = (*this)[slot];
    FOREBAY_CHECK(record.slot_state & 1);
    const uint32_t next = (GenerationOf(record) + 1) & kGenerationMask;
    record = T{};
    record.slot_state = next << 1;
    record.link = free_;
    free_ = slot;
    --used_;
  }

  T& operator[](uint32_t slot) { return records_[slot]; }
  const T& operator[](uint32_t slot) const { return records_[slot]; }

  bool InUse(uint32_t slot) const { return slot < size() && ((*this)[slot].slot_state & 1) != 0; }
  uint32_t Generation(uint32_t slot) const { return GenerationOf((*this)[slot]); }

  // The slot that an id of this shard names, kNone if there is none (any more).
  template <class Tag>
  uint32_t Find(ShardId shard, SlotId<Tag> id) const {
    const bool found =
        id.shard() == shard && InUse(id.slot()) && Generation(id.slot()) == id.generation();
    return found ? id.slot() : kNone;
  }

  // Slots ever used; all slot numbers are below it.
  uint32_t size() const { return static_cast<uint32_t>(records_.size()); }
  uint32_t used() const { return used_; }
  uint64_t memory_bytes() const { return records_.memory_bytes(); }

  void Snapshot(codec::Writer& writer) const {
    writer(size(), free_);
    records_.Snapshot(writer, [](codec::Writer& to, std::span<const T> records) {
      for (const T& record : records) to(record);
    });
  }

  // False when the free list is not one; what records hold besides is the caller's to check.
  template <class Reader>
  bool Restore(Reader& reader) {
    *this = SlotTable();
    uint32_t size = 0;
    uint32_t free = kNone;
    reader(size, free);
    if (!reader.ok() || size > reader.left()) return false;
    for (uint32_t slot = 0; slot < size && reader.ok(); ++slot) {
      T& record = records_.Append();
      reader(record);
      used_ += record.slot_state & 1;
    }
    free_ = free;
    return reader.ok() && FreeListHolds();
  }

  // Every slot that is not in use is on the free list once.
  bool FreeListHolds() const {
    uint32_t count = 0;
    for (uint32_t slot = free_; slot != kNone; slot = (*this)[slot].link) {
      if (slot >= size() || InUse(slot) || ++count > size() - used_) return false;
    }
    return count == size() - used_;
  }

 private:
  static constexpr uint32_t kGenerationMask = GroupId::kGenerationMask;

  static uint32_t GenerationOf(const T& record) {
    return (record.slot_state >> 1) & kGenerationMask;
  }

  codec::CopyOnWriteArray<T, kChunk> records_;
  uint32_t used_ = 0;
  uint32_t free_ = kNone;
};

}  // namespace forebay::rollout
