// A record of the log of task contents: the id, then the item's bytes.
//
// Pure functions.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/ids.h"

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

}  // namespace forebay::storage
