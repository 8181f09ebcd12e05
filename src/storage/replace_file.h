// Replaces a small file as a whole, durably: after a crash it is the old one or the new one.
//
// For one thread; blocks. Two steps, for those to whom it matters which one failed.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/log_blocking.h"

namespace forebay::storage {

// Writes the new contents aside, as `name`.tmp, synced. After an error nothing has changed.
absl::Status WriteAside(Blocking* disk, const std::string& folder, const std::string& name,
                        std::string_view bytes);
// Puts what was written aside in place. After an error it is unknown which one is found later.
absl::Status PutInPlace(Blocking* disk, const std::string& folder, const std::string& name);

// Both.
absl::Status ReplaceFile(Blocking* disk, const std::string& folder, const std::string& name,
                         std::string_view bytes);

// The contents. DataLoss, with the path, if there are more than `bytes_max`.
absl::StatusOr<std::string> ReadFile(Blocking* disk, const std::string& path, size_t bytes_max);

}  // namespace forebay::storage
