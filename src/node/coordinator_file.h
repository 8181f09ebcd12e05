// What the local coordinator keeps, and how it lies in its file (docs/formats/coordinator.md).
//
// Plain values and pure functions; ReadCoordinatorFile blocks. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/coordinator.h"
#include "storage/log_blocking.h"

namespace forebay::node {

struct LocalEntry {
  std::string value;
  uint64_t revision = 0;
  uint64_t presence = 0;  // which presence of this process keeps it; 0: none
};

struct LocalKeys {
  std::map<std::string, LocalEntry> entries;
  uint64_t revision = 0;

  KeyState Under(const std::string& prefix) const;
  KeyValue At(const std::string& key) const;
};

constexpr char kCoordinatorFile[] = "keys";

std::string EncodeKeys(const LocalKeys& keys);
// DataLoss or FailedPrecondition, without the file's name.
absl::StatusOr<LocalKeys> DecodeKeys(std::string_view bytes);

// Of `folder`. The error names the file; NotFound, by errno, if there is none.
absl::StatusOr<LocalKeys> ReadCoordinatorFile(storage::Blocking* disk, const std::string& folder);

}  // namespace forebay::node
