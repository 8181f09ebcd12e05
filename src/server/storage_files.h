// Which files a run has on its disks, and how much room is left beside them.
//
// LookAtFiles may be called from any thread; `done` runs once, on a thread of a disk, and must not
// block. The disks outlive the look. A disk that hangs answers when it goes on: whoever has to
// answer sooner keeps the time himself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "io/disk.h"

namespace forebay::server {

// Of a machine's folder.
struct MachineFiles {
  std::string machine;
  uint64_t log_files = 0, log_bytes = 0;
  uint64_t snapshots = 0, snapshot_bytes = 0;
  uint64_t other_files = 0, other_bytes = 0;
};

struct RunFiles {
  std::vector<MachineFiles> machines;
  std::optional<io::Space> log_space, segment_space;
  absl::Status status;  // the first error; what came after it is missing
};

struct FileSites {
  io::Disk* log_disk = nullptr;
  std::string directory;              // of the run
  std::vector<std::string> machines;  // their folders in it
  io::Disk* segment_disk = nullptr;
  std::string segment_directory;
};

void LookAtFiles(FileSites sites, std::function<void(RunFiles)> done);

}  // namespace forebay::server
