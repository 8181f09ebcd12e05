#include "storage/content_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
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

const ContentStore::Arena* ContentStore::Find(uint64_t arena) const {
  if (arena >= kFan * kFan) return nullptr;
  const Directory* const directory = directories_[arena / kFan].load(std::memory_order_acquire);
  if (directory == nullptr) return nullptr;
  return directory->arenas[arena % kFan].load(std::memory_order_acquire);
}

ContentStore::Arena* ContentStore::NewArena(uint64_t size) {
  auto& slot = directories_[arenas_ / kFan];
  Directory* directory = slot.load(std::memory_order_relaxed);
  if (directory == nullptr) {
    directory = new Directory;
    slot.store(directory, std::memory_order_release);
  }
  auto* const arena = new Arena;
  arena->bytes.reset(new char[size]);
  arena->size = size;
  directory->arenas[arenas_ % kFan].store(arena, std::memory_order_release);
  ++arenas_;
  use_.arena_bytes += size;
  return arena;
}

PayloadId ContentStore::Put(std::string_view item) {
  const uint64_t size = Stored(item);
  if (size > largest()) largest_.store(size, std::memory_order_relaxed);
  Arena* arena = open_;
  uint64_t number = open_number_;
  if (size > kArenaBytes) {
    number = arenas_;
    arena = NewArena(size);
  } else if (arena == nullptr || arena->size - arena->used.load(std::memory_order_relaxed) < size) {
    number = open_number_ = arenas_;
    arena = open_ = NewArena(kArenaBytes);
  }
  const uint64_t offset = arena->used.load(std::memory_order_relaxed);
  char* at = arena->bytes.get() + offset;
  uint64_t length = item.size();
  while (length >= 0x80) {
    *at++ = static_cast<char>(length | 0x80);
    length >>= 7;
  }
  *at++ = static_cast<char>(length);
  if (!item.empty()) std::memcpy(at, item.data(), item.size());
  arena->used.store(offset + size, std::memory_order_release);
  return PayloadId(((number + 1) << kOffsetBits) | offset);
}

// What Put will take for these items, to the byte.
ContentStore::Need ContentStore::NeedOf(absl::Span<const std::string_view> items) const {
  Need need;
  uint64_t room = open_ == nullptr ? 0 : open_->size - open_->used.load(std::memory_order_relaxed);
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
    } else {
      room -= size;
    }
  }
  return need;
}

bool ContentStore::Fits(const Need& need) const {
  return need.arena_bytes <= bytes_max_ - std::min(bytes_max_, use_.arena_bytes) &&
         need.arenas <= kFan * kFan - arenas_;
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
  absl::MutexLock lock(&mutex_);
  const Need need = NeedOf(items);
  if (!Fits(need)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("task contents of ", need.bytes, " bytes do not fit: ", use_.arena_bytes,
                     " bytes of arenas are taken, at most ", bytes_max_));
  }
  for (size_t i = 0; i < items.size(); ++i) ids[i] = Put(items[i]);
  use_.items += items.size();
  use_.bytes += need.bytes;
  return absl::OkStatus();
}

// Equal adds in equal order take equal places, so the id is known before; anything else means that
// an item is missing or was written by a program that places items otherwise.
absl::Status ContentStore::Restore(PayloadId id, std::string_view item) {
  absl::MutexLock lock(&mutex_);
  const Need need = NeedOf({&item, 1});
  if (item.size() > kItemBytesMax) return absl::DataLossError("a task that is too long");
  if (!Fits(need)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the stored task contents do not fit: ", use_.arena_bytes,
                     " bytes of arenas are taken, at most ", bytes_max_));
  }
  const PayloadId place = Put(item);
  if (place != id) {
    return absl::DataLossError(absl::StrCat("a task content belongs at ", absl::Hex(id.value),
                                            ", the next place is ", absl::Hex(place.value)));
  }
  use_.items += 1;
  use_.bytes += need.bytes;
  return absl::OkStatus();
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
    absl::MutexLock lock(&mutex_);
    use_.dead_bytes += Stored(*item);
  }
}

ContentUse ContentStore::use() const {
  absl::MutexLock lock(&mutex_);
  return use_;
}

}  // namespace forebay::storage
