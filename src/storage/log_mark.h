// The file "synced" beside a log: up to which position the log was durable a moment ago. A log that
// ends before it has lost whole batches, of which nothing in its own files would tell.
//
// docs/formats/log.md has the bytes. The mark stays behind the log: it is written from time to time
// and at a clean end, and what was synced after it may be lost unseen. Not thread-safe: LogMarker
// belongs to its owner's loop, as LogWriter does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "io/disk.h"
#include "storage/log_writer.h"

namespace forebay::storage {

inline constexpr char kLogMarkName[] = "synced";

std::string EncodeLogMark(const std::string& machine, LogPosition synced);
// DataLoss if they are no mark of this machine.
absl::StatusOr<LogPosition> DecodeLogMark(std::string_view bytes, const std::string& machine);

class LogMarker {
 public:
  LogMarker(io::Disk* disk, const LogOptions& options, LogPost post);
  ~LogMarker();
  LogMarker(const LogMarker&) = delete;
  LogMarker& operator=(const LogMarker&) = delete;

  // Writes that everything up to here is durable, unless that is written already. `done` may be
  // empty; it comes in the loop when that is over, or never once the marker is gone. What fails is
  // left to the next call: the mark is then older.
  using Done = absl::AnyInvocable<void()>;
  void Mark(LogPosition durable, Done done);

 private:
  struct Flight;  // shared with the disk's closures
  void Begin();
  static void Write(const std::shared_ptr<Flight>& flight);
  static void Answer(const std::shared_ptr<Flight>& flight, absl::Status status);
  void Ended(const Flight& flight, const absl::Status& status);

  io::Disk* const disk_;
  const std::string path_, machine_;
  const LogPost post_;
  const std::shared_ptr<LogMarker*> self_;  // null inside once the marker is gone
  LogPosition wanted_, marked_;
  std::vector<Done> waiting_;
  bool busy_ = false;
};

}  // namespace forebay::storage
