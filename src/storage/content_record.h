// What the log of task contents holds: records, each an id and the item's bytes; and snapshots.
//
// Pure functions.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "storage/content_store.h"

namespace forebay::storage {

// Replaces what is in `*record`.
inline void EncodeContentRecord(PayloadId id, std::string_view item, std::string* record) {
  record->assign(reinterpret_cast<const char*>(&id.value), sizeof(id.value));
  record->append(item);
}

// False if it has no id. The item is a view into the record.
inline bool DecodeContentRecord(std::string_view record, PayloadId* id, std::string_view* item) {
  if (record.size() < sizeof(id->value)) return false;
  std::memcpy(&id->value, record.data(), sizeof(id->value));
  *item = record.substr(sizeof(id->value));
  return id->value != 0;
}

// The beginning of a snapshot: where the next items go.
inline void AppendContentEnd(const ContentStore::End& end, std::string* to) {
  for (const uint64_t value : {end.arenas, end.open, end.open_used}) {
    to->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

// False if not all of it is there yet.
inline bool TakeContentEnd(std::string_view* from, ContentStore::End* end) {
  if (from->size() < 3 * sizeof(uint64_t)) return false;
  for (uint64_t* value : {&end->arenas, &end->open, &end->open_used}) {
    std::memcpy(value, from->data(), sizeof(*value));
    from->remove_prefix(sizeof(*value));
  }
  return true;
}

// An item in a snapshot.
inline void AppendContentItem(PayloadId id, std::string_view item, std::string* to) {
  const auto size = static_cast<uint32_t>(item.size());
  to->append(reinterpret_cast<const char*>(&id.value), sizeof(id.value));
  to->append(reinterpret_cast<const char*>(&size), sizeof(size));
  to->append(item);
}

// False if not all of it is there yet.
inline bool TakeContentItem(std::string_view* from, PayloadId* id, std::string_view* item) {
  uint32_t size = 0;
  constexpr size_t kHead = sizeof(id->value) + sizeof(size);
  if (from->size() < kHead) return false;
  std::memcpy(&size, from->data() + sizeof(id->value), sizeof(size));
  if (from->size() - kHead < size) return false;
  std::memcpy(&id->value, from->data(), sizeof(id->value));
  *item = from->substr(kHead, size);
  from->remove_prefix(kHead + size);
  return true;
}

}  // namespace forebay::storage
