#include "storage/content_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"
#include "codec/wire.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kOffsetMask = ContentStore::kArenaBytes - 1;

uint64_t Stored(std::string_view item) { return codec::VarintSize(item.size()) + item.size(); }

}  // namespace

ContentStore::~ContentStore() {
  for (auto& slot : directories_) {
    Directory* const directory = slot.load(std::memory_order_relaxed);
    if (directory == nullptr) continue;
    for (auto& arena : directory->arenas) delete arena.load(std::memory_order_relaxed);
    delete directory;
  }
}

ContentStore::Arena* ContentStore::Find(uint64_t arena) const {
  if (arena >= kFan * kFan) return nullptr;
  const Directory* const directory = directories_[arena / kFan].load(std::memory_order_acquire);
  if (directory == nullptr) return nullptr;
  return directory->arenas[arena % kFan].load(std::memory_order_acquire);
}

ContentStore::Arena* ContentStore::NewArena(uint64_t number, uint64_t size) {
  auto& slot = directories_[number / kFan];
  Directory* directory = slot.load(std::memory_order_relaxed);
  if (directory == nullptr) {
    directory = new Directory;
    slot.store(directory, std::memory_order_release);
  }
  auto* const arena = new Arena;
  arena->bytes.reset(static_cast<char*>(std::calloc(size, 1)));
  FOREBAY_CHECK(arena->bytes != nullptr);
  arena->size = size;
  directory->arenas[number % kFan].store(arena, std::memory_order_release);
  use_.arena_bytes += size;
  return arena;
}

PayloadId ContentStore::TakePlace(uint64_t size) {
  uint64_t number = end_.arenas, offset = 0;
  if (size > kArenaBytes) {
    ++end_.arenas;
  } else {
    if (kArenaBytes - end_.open_used < size) end_ = {end_.arenas + 1, end_.arenas, 0};
    number = end_.open;
    offset = end_.open_used;
    end_.open_used += size;
  }
  return PayloadId(((number + 1) << kOffsetBits) | offset);
}

void ContentStore::Put(PayloadId id, std::string_view item) {
  const uint64_t size = Stored(item);
  const uint64_t number = (id.value >> kOffsetBits) - 1, offset = id.value & kOffsetMask;
  if (size > largest()) largest_.store(size, std::memory_order_relaxed);
  Arena* arena = Find(number);
  if (arena == nullptr) arena = NewArena(number, std::max(size, kArenaBytes));
  char* at = arena->bytes.get() + offset;
  uint64_t length = item.size();
  while (length >= 0x80) {
    *at++ = static_cast<char>(length | 0x80);
    length >>= 7;
  }
  *at++ = static_cast<char>(length);
  if (!item.empty()) std::memcpy(at, item.data(), item.size());
  const uint64_t used = std::max(offset + size, arena->used.load(std::memory_order_relaxed));
  arena->used.store(used, std::memory_order_release);
  use_.items += 1;
  use_.bytes += size;
}

// What new items will take, to the byte; the open arena may still lack its memory.
ContentStore::Need ContentStore::NeedOf(absl::Span<const std::string_view> items) const {
  Need need;
  uint64_t room = kArenaBytes - end_.open_used;
  bool open_lacks = room > 0 && Find(end_.open) == nullptr;
  for (std::string_view item : items) {
    const uint64_t size = Stored(item);
    need.bytes += size;
    if (size > kArenaBytes) {
      need.arena_bytes += size;
      need.arenas += 1;
    } else if (size > room) {
      need.arena_bytes += kArenaBytes;
      need.arenas += 1;
      room = kArenaBytes - size;
      open_lacks = false;
    } else {
      if (std::exchange(open_lacks, false)) need.arena_bytes += kArenaBytes;
      room -= size;
    }
  }
  return need;
}

bool ContentStore::Fits(const Need& need) const {
  return need.arena_bytes <= bytes_max_ - std::min(bytes_max_, use_.arena_bytes) &&
         need.arenas <= kFan * kFan - end_.arenas;
}

absl::Status ContentStore::Add(absl::Span<const std::string_view> items,
                               absl::Span<PayloadId> ids) {
  FOREBAY_CHECK(items.size() == ids.size());
  for (std::string_view item : items) {
    if (item.size() > kItemBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a task of ", item.size(), " bytes, at most ", kItemBytesMax));
    }
  }
  MutexLock lock(&mutex_);
  const Need need = NeedOf(items);
  if (!Fits(need)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("task contents of ", need.bytes, " bytes do not fit: ", use_.arena_bytes,
                     " bytes of arenas are taken, at most ", bytes_max_));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    ids[i] = TakePlace(Stored(items[i]));
    Put(ids[i], items[i]);
  }
  return absl::OkStatus();
}

// Equal adds in equal order take equal places, so the id is known before; anything else means that
// an item is missing or was written by a program that places items otherwise.
absl::Status ContentStore::Restore(PayloadId id, std::string_view item, bool live) {
  if (item.size() > kItemBytesMax) return absl::DataLossError("a task that is too long");
  MutexLock lock(&mutex_);
  const PayloadId place = TakePlace(Stored(item));
  if (place != id || end_.arenas > kFan * kFan) {
    return absl::DataLossError(absl::StrCat("a task content belongs at ", absl::Hex(id.value),
                                            ", the next place is ", absl::Hex(place.value)));
  }
  return live ? PutBack(id, item) : absl::OkStatus();
}

absl::Status ContentStore::PutBack(PayloadId id, std::string_view item) {
  const uint64_t number = (id.value >> kOffsetBits) - 1;
  Need need;
  if (number >= kFan * kFan) return absl::DataLossError("a task content beyond the last place");
  if (Find(number) == nullptr) need.arena_bytes = std::max(Stored(item), kArenaBytes);
  if (!Fits(need)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the stored task contents do not fit: ", use_.arena_bytes,
                     " bytes of arenas are taken, at most ", bytes_max_));
  }
  Put(id, item);
  return absl::OkStatus();
}

ContentStore::End ContentStore::end() const {
  MutexLock lock(&mutex_);
  return end_;
}

absl::Status ContentStore::RestoreEnd(const End& end) {
  MutexLock lock(&mutex_);
  if (end_.arenas > 0) return absl::DataLossError("the end of task contents after some of them");
  const bool right = end.arenas <= kFan * kFan && end.open_used <= kArenaBytes &&
                     (end.open < end.arenas || end.open_used == kArenaBytes);
  if (!right) return absl::DataLossError("the end of task contents is at no place");
  end_ = end;
  return absl::OkStatus();
}

absl::Status ContentStore::RestoreAt(PayloadId id, std::string_view item) {
  MutexLock lock(&mutex_);
  const uint64_t number = (id.value >> kOffsetBits) - 1, offset = id.value & kOffsetMask;
  const uint64_t size = Stored(item);
  const uint64_t most = number == end_.open ? end_.open_used : kArenaBytes;
  const Arena* const arena = number < end_.arenas ? Find(number) : nullptr;
  const bool fits = size <= kArenaBytes ? offset + size <= most : offset == 0 && arena == nullptr;
  const bool ascends = arena == nullptr || arena->used.load(std::memory_order_relaxed) <= offset;
  if (item.size() > kItemBytesMax || number >= end_.arenas || !fits || !ascends) {
    return absl::DataLossError(absl::StrCat("a task content of ", size, " bytes belongs at ",
                                            absl::Hex(id.value), ", where it has no room"));
  }
  return PutBack(id, item);
}

void ContentStore::Clear() {
  MutexLock lock(&mutex_);
  for (auto& slot : directories_) {
    Directory* const directory = slot.exchange(nullptr);
    if (directory == nullptr) continue;
    for (auto& arena : directory->arenas) delete arena.load(std::memory_order_relaxed);
    delete directory;
  }
  end_ = End();
  use_ = ContentUse();
}

bool ContentStore::ForEach(const End& end, PayloadId* next,
                           absl::FunctionRef<bool(PayloadId, std::string_view)> f) const {
  uint64_t number = next->value >> kOffsetBits, offset = next->value & kOffsetMask;
  if (number > 0) --number;
  for (; number < end.arenas; ++number, offset = 0) {
    const Arena* const arena = Find(number);
    if (arena == nullptr) continue;
    const uint64_t all = arena->used.load(std::memory_order_acquire);
    const uint64_t used = number == end.open ? std::min(all, end.open_used) : all;
    while (offset < used) {
      const PayloadId id(((number + 1) << kOffsetBits) | offset);
      const auto item = Read(id);
      FOREBAY_CHECK(item.ok());
      offset += Stored(*item);
      const bool ends = offset >= used;  // an item of its own arena may be longer than an offset
      *next =
          PayloadId(ends ? (number + 2) << kOffsetBits : ((number + 1) << kOffsetBits) | offset);
      if (!f(id, *item)) return true;
      if (ends) break;
    }
  }
  return false;
}

absl::StatusOr<std::string_view> ContentStore::Read(PayloadId id) const {
  const uint64_t arena_number = id.value >> kOffsetBits;
  const Arena* const arena = arena_number == 0 ? nullptr : Find(arena_number - 1);
  if (arena != nullptr) {
    const uint64_t used = arena->used.load(std::memory_order_acquire);
    const uint64_t offset = id.value & kOffsetMask;
    if (offset < used) {
      const char* at = arena->bytes.get() + offset;
      const char* const end = arena->bytes.get() + used;
      uint64_t size = 0;
      if (codec::ReadVarint(&at, end, &size) && size <= static_cast<uint64_t>(end - at)) {
        return std::string_view(at, size);
      }
    }
  }
  return absl::NotFoundError(absl::StrCat("no task content ", absl::Hex(id.value)));
}

void ContentStore::Kill(absl::Span<const PayloadId> ids) {
  for (const PayloadId id : ids) {
    const auto item = Read(id);
    if (!item.ok()) continue;
    MutexLock lock(&mutex_);
    use_.dead_bytes += Stored(*item);
  }
}

ContentUse ContentStore::use() const {
  MutexLock lock(&mutex_);
  return use_;
}

}  // namespace forebay::storage
