// Timers by slot number: arm, move and cancel in O(1), whatever their count.
//
// A hashed wheel: a timer waits in the bucket of its time modulo the wheel's turn, and is looked at
// once a turn. Memory follows the timers that are armed, not the largest slot. Timers fire up to
// kTickMs late and never early. Not thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "rollout/slot_table.h"

namespace forebay::shard {

template <class Data>
class Timers {
 public:
  static constexpr uint64_t kTickMs = 16;
  static constexpr uint64_t kNever = UINT64_MAX;

  explicit Timers(uint64_t now_ms) : tick_(now_ms / kTickMs), heads_(kBuckets, rollout::kNone) {}

  // Arms the timer, or moves it; its data stays, and is new for one that was not armed.
  Data& Set(uint32_t slot, uint64_t due_ms) {
    Page& page = PageOf(slot);
    Entry& entry = page.entries[slot % kPage];
    if (entry.due_ms == kNever) {
      ++page.used;
      ++size_;
      entry.data = Data{};
    } else {
      Unlink(entry);
    }
    entry.due_ms = std::min(due_ms, kNever - 1);
    const uint32_t bucket = BucketOf(entry);
    entry.previous = rollout::kNone;
    entry.next = heads_[bucket];
    if (entry.next != rollout::kNone) Get(entry.next).previous = slot;
    heads_[bucket] = slot;
    entry.bucket = bucket;
    filled_[bucket / 64] |= uint64_t{1} << (bucket % 64);
    return entry.data;
  }

  void Cancel(uint32_t slot) {
    Entry* entry = Find(slot);
    if (entry == nullptr) return;
    Unlink(*entry);
    entry->due_ms = kNever;
    --size_;
    Page& page = *pages_[directory_[slot / kPage]];
    if (--page.used > 0) return;
    free_pages_.push_back(directory_[slot / kPage]);
    directory_[slot / kPage] = rollout::kNone;
  }

  // nullptr: not armed.
  Data* data(uint32_t slot) {
    Entry* entry = Find(slot);
    return entry == nullptr ? nullptr : &entry->data;
  }
  // kNever: not armed.
  uint64_t due_ms(uint32_t slot) const {
    const Entry* entry = const_cast<Timers*>(this)->Find(slot);
    return entry == nullptr ? kNever : entry->due_ms;
  }
  size_t size() const { return size_; }

  // Cancels the timers that are due, and appends their slots.
  void TakeDue(uint64_t now_ms, std::vector<uint32_t>* due) {
    const uint64_t last = std::max(now_ms / kTickMs, tick_);
    const size_t first = due->size();
    const uint64_t ticks = std::min<uint64_t>(last - tick_ + 1, kBuckets);
    for (uint64_t i = 0; i < ticks; ++i) {
      uint32_t slot = heads_[(last - i) % kBuckets];
      for (; slot != rollout::kNone; slot = Get(slot).next) {
        if (Get(slot).due_ms <= now_ms) due->push_back(slot);
      }
    }
    // With its last millisecond a tick is over: what is left in its bucket is due turns later, and
    // Next would name this moment again and again.
    tick_ = std::max((now_ms + 1) / kTickMs, tick_);
    // In an order that does not depend on that of arming.
    std::sort(due->begin() + first, due->end());
    for (size_t i = first; i < due->size(); ++i) Cancel((*due)[i]);
  }

  // When TakeDue may find something: not before the earliest timer's time, and at most a tick after
  // it.
  uint64_t Next() const {
    if (size_ == 0) return kNever;
    const uint32_t start = static_cast<uint32_t>(tick_ % kBuckets);
    for (uint32_t i = 0; i <= kWords; ++i) {
      const uint32_t word = (start / 64 + i) % kWords;
      uint64_t bits = filled_[word];
      if (i == 0) bits &= ~uint64_t{0} << (start % 64);
      if (bits == 0) continue;
      const uint32_t bucket = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      const uint64_t distance = (bucket + kBuckets - start) % kBuckets;
      return (tick_ + distance + 1) * kTickMs - 1;
    }
    return kNever;
  }

 private:
  static constexpr uint32_t kBuckets = 4096;  // a turn of 65 s
  static constexpr uint32_t kWords = kBuckets / 64;
  static constexpr uint32_t kPage = 16;

  struct Entry {
    uint64_t due_ms = kNever;
    uint32_t previous = rollout::kNone;
    uint32_t next = rollout::kNone;
    uint32_t bucket = 0;
    Data data{};
  };
  struct Page {
    uint32_t used = 0;
    Entry entries[kPage];
  };

  Entry& Get(uint32_t slot) { return pages_[directory_[slot / kPage]]->entries[slot % kPage]; }

  Entry* Find(uint32_t slot) {
    if (slot / kPage >= directory_.size() || directory_[slot / kPage] == rollout::kNone)
      return nullptr;
    Entry& entry = Get(slot);
    return entry.due_ms == kNever ? nullptr : &entry;
  }

  Page& PageOf(uint32_t slot) {
    const uint32_t index = slot / kPage;
    if (index >= directory_.size()) directory_.resize(index + 1, rollout::kNone);
    if (directory_[index] == rollout::kNone) {
      if (free_pages_.empty()) {
        free_pages_.push_back(static_cast<uint32_t>(pages_.size()));
        pages_.push_back(std::make_unique<Page>());
      }
      directory_[index] = free_pages_.back();
      free_pages_.pop_back();
    }
    return *pages_[directory_[index]];
  }

  // What is overdue already goes where the next look falls.
  uint32_t BucketOf(const Entry& entry) const {
    return static_cast<uint32_t>(std::max(entry.due_ms / kTickMs, tick_) % kBuckets);
  }

  void Unlink(const Entry& entry) {
    if (entry.next != rollout::kNone) Get(entry.next).previous = entry.previous;
    if (entry.previous != rollout::kNone) {
      Get(entry.previous).next = entry.next;
    } else {
      heads_[entry.bucket] = entry.next;
    }
    if (heads_[entry.bucket] == rollout::kNone) {
      filled_[entry.bucket / 64] &= ~(uint64_t{1} << (entry.bucket % 64));
    }
  }

  uint64_t tick_;  // everything before it has fired
  size_t size_ = 0;
  std::vector<uint32_t> heads_;
  uint64_t filled_[kWords] = {};
  std::vector<uint32_t> directory_;  // page of each kPage slots, kNone
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<uint32_t> free_pages_;
};

}  // namespace forebay::shard
