// Brings a machine's snapshot and log back at the start, checked, and repairs what a crash may have
// left: a torn tail is cut, a file that was being created is removed.
//
// Blocks; for one thread, with the directory locked (log_lock.h) and no LogWriter on it.
// Corruption changes nothing on the disk: DataLoss, whose text names file and offset, what was
// expected, and what to do. Another machine's files: FailedPrecondition. Errors of the disk and of
// the sink come back as they are. After an error what the sink was given is to be thrown away.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "storage/log_blocking.h"

namespace forebay::storage {

// What takes it all: the snapshot if there is one, chunk by chunk as it was written, then each
// record after it, in order. The snapshot has been checked as a whole before its first chunk comes.
struct LogSink {
  // `bytes`: of all its chunks.
  std::function<absl::Status(LogPosition position, uint64_t bytes)> begin_snapshot;
  std::function<absl::Status(std::string_view chunk)> chunk;
  std::function<absl::Status()> end_snapshot;
  std::function<absl::Status(LogPosition position, std::string_view record)> record;
  // May be empty. After the last record, before a torn tail, which `torn` names, is cut: with an
  // error it stays as it is.
  std::function<absl::Status(std::string_view torn)> before_cut;
};

struct RecoveredLog {
  LogPosition next;             // of the first record to come, for the LogWriter
  uint64_t file_number = 1;     // of the first file to create, likewise
  LogPosition snapshot;         // where the one that was used stands; 0 if there is none
  uint64_t records = 0;         // after it
  uint64_t bytes = 0;           // read, of the snapshot and the files
  uint64_t snapshot_bytes = 0;  // of these, the snapshot's
  double seconds = 0;
  bool tail_cut = false;           // something was there that was not whole, and is gone
  std::vector<std::string> notes;  // what was cut, removed or passed over, for the daemon's log
};

// `directory` exists; `machine` is the name its files must have.
absl::StatusOr<RecoveredLog> RecoverLog(Blocking disk, const std::string& directory,
                                        const std::string& machine, const LogSink& sink);

}  // namespace forebay::storage
