// Small looks at a directory for `buffer-ctl doctor`: how long a sync takes, and whether other
// nodes see the same directory.
//
// Pure functions but for the disk; they block, and leave no file behind but the one that is asked
// for. Names begin with "doctor-", which no store takes for its own.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace forebay::server {

struct DiskLook {
  uint64_t sync_us = 0;
  uint64_t free_bytes = 0;  // for this user
  uint64_t total_bytes = 0;
};

// Writes and syncs a small file, and removes it.
absl::StatusOr<DiskLook> LookAtDisk(const std::string& directory);

// The file of one node in one examination.
absl::Status WriteProbe(const std::string& directory, uint64_t nonce, uint32_t node);
bool HasProbe(const std::string& directory, uint64_t nonce, uint32_t node);
// Ok if it is not there.
absl::Status RemoveProbe(const std::string& directory, uint64_t nonce, uint32_t node);

}  // namespace forebay::server
