// What a start of the daemon would find in a run's directory, without changing anything: the state
// machines' logs and snapshots are read as recovery reads them, and then every payload and every
// task content that they name.
//
// Blocks, for as long as reading all of it takes; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "io/disk.h"
#include "node/data_directory.h"
#include "node/directory_journal.h"

namespace forebay::node {

struct VerifyOptions {
  std::string directory;
  std::string segment_directory;              // empty: `directory`
  uint64_t memory_bytes = uint64_t{1} << 30;  // for payloads that are being read
};

struct VerifyReport {
  RunIdentity run;
  std::vector<RecoveredMachine> machines;  // those that are whole
  uint64_t contents = 0, content_bytes = 0;
  uint64_t segments = 0, payloads = 0, payload_bytes = 0;
  bool may_start = true;  // a start is not refused
  // What a start would cut, remove or pass over: nothing that was acknowledged.
  std::vector<std::string> remarks;
  // What is lost, each with file and offset, and what is known to help. Empty: all is well.
  std::vector<std::string> damage;
};

// An error says why the directory could not be looked at: in use, not there, not of a run. `disk`
// is only read from.
absl::StatusOr<VerifyReport> VerifyDirectory(io::Disk* disk, const VerifyOptions& options);

}  // namespace forebay::node
