// The contents of tasks (external id, payload, attributes, encoded as fields of an Assignment):
// append-only arenas.
//
// An item costs its bytes and a length of one to five bytes; its id is its place. Thread-safe: adds
// take a lock once a batch, reads none. Views stay good as long as the store: arenas are never
// freed, dead bytes are only counted. What is dead at a start comes back without its memory: an
// arena is there once something in it is live.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/sync.h"

namespace forebay::storage {

struct ContentUse {
  uint64_t items = 0;
  uint64_t bytes = 0;       // of items, lengths included
  uint64_t dead_bytes = 0;  // of items that were killed
  uint64_t arena_bytes = 0;
};

class ContentStore {
 public:
  static constexpr uint64_t kArenaBytes = uint64_t{1} << 20;
  // Larger items are refused; one that does not fit an arena gets one of its own.
  static constexpr uint64_t kItemBytesMax = uint64_t{64} << 20;

  explicit ContentStore(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  ~ContentStore();

  // Adds all or none; ids[i] belongs to items[i]. ResourceExhausted when their arenas do not fit
  // bytes_max.
  absl::Status Add(absl::Span<const std::string_view> items, absl::Span<PayloadId> ids);
  // Puts an item back to the place that its id names, after those that were added before it: the
  // next place is then as it was after that Add. An item that is not live only takes its place.
  // DataLoss if that is not possible, ResourceExhausted as for Add.
  absl::Status Restore(PayloadId id, std::string_view item, bool live = true);
  // Where the next items go.
  struct End {
    uint64_t arenas = 0;
    uint64_t open = 0;  // the arena of small items ...
    uint64_t open_used = kArenaBytes;
  };
  End end() const;
  // Of an empty store: what lay before the end is put back by RestoreAt, as far as it is live.
  absl::Status RestoreEnd(const End& end);
  absl::Status RestoreAt(PayloadId id, std::string_view item);
  // Forgets everything, as if it were new. Nobody reads meanwhile, or holds a view.
  void Clear();
  // The items that lay before `end` in the order of their ids, from `*next` on, while `f` says so;
  // false if none is left, else `*next` is where to go on. Of a store in which no item was left
  // out.
  bool ForEach(const End& end, PayloadId* next,
               absl::FunctionRef<bool(PayloadId, std::string_view)> f) const;
  absl::StatusOr<std::string_view> Read(PayloadId id) const;
  // The items are used no more.
  void Kill(absl::Span<const PayloadId> ids);
  ContentUse use() const;
  // Bytes of the largest item that was ever added.
  uint64_t largest() const { return largest_.load(std::memory_order_relaxed); }

 private:
  // An id is (arena + 1) << kOffsetBits | offset; an item of its own arena is at offset 0.
  static constexpr int kOffsetBits = 20;
  static constexpr size_t kFan = 1024;  // arenas are found in two steps of this width
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  struct Arena {
    std::unique_ptr<char[], Free> bytes;  // zeros where nothing was put
    uint64_t size = 0;
    std::atomic<uint64_t> used{0};
  };
  struct Directory {
    std::array<std::atomic<Arena*>, kFan> arenas{};
  };

  struct Need {
    uint64_t bytes = 0;
    uint64_t arena_bytes = 0;
    uint64_t arenas = 0;
  };

  Need NeedOf(absl::Span<const std::string_view> items) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Arena* Find(uint64_t arena) const;
  Arena* NewArena(uint64_t number, uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fits(const Need& need) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The place of the next item of so many stored bytes, which it takes.
  PayloadId TakePlace(uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes an item to its place.
  void Put(PayloadId id, std::string_view item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PutBack(PayloadId id, std::string_view item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t bytes_max_;
  std::atomic<uint64_t> largest_{0};
  std::array<std::atomic<Directory*>, kFan> directories_{};
  mutable Mutex mutex_;
  End end_ ABSL_GUARDED_BY(mutex_);
  ContentUse use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::storage
