// Reads a snapshot back: the whole is checked before any of it is given away, chunk by chunk, so
// that a big state never is in memory twice.
//
// Blocks; for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "io/disk.h"
#include "storage/log_blocking.h"
#include "storage/snapshot_format.h"

namespace forebay::storage {

// Positions of the finished snapshots among a directory's files, the newest first.
std::vector<LogPosition> SnapshotsAmong(const std::vector<io::Entry>& entries);

class SnapshotReader {
 public:
  SnapshotReader(Blocking disk, const std::string& directory, const std::string& machine,
                 LogPosition position);

  // Reads all of it. DataLoss names the file, the offset and what was expected; FailedPrecondition
  // if it is another machine's.
  absl::Status Check();
  // Reads all of it again and gives the chunks away. After Check.
  absl::Status Stream(const std::function<absl::Status(std::string_view chunk)>& sink);
  // Of all chunks, after Check.
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  // Read so far, by both.
  uint64_t bytes() const { return bytes_; }

 private:
  absl::Status Pass(const std::function<absl::Status(std::string_view chunk)>& sink);
  absl::Status CheckHead(std::string_view bytes) const;
  // DataLoss with file and offset.
  absl::Status Damaged(uint64_t offset, absl::string_view what) const;
  // The next bytes of the file, fewer only at its end.
  absl::StatusOr<std::string_view> Next(const io::FileRef& file, uint64_t offset, size_t size);

  Blocking disk_;
  const std::string path_;
  const std::string machine_;
  const LogPosition position_;
  std::string buffer_;     // of the file, from buffer_at_ ...
  size_t buffer_end_ = 0;  // ... so many bytes
  uint64_t buffer_at_ = 0;
  uint64_t chunk_bytes_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace forebay::storage
