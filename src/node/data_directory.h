// The directory in which a node keeps a run: whose it is, which start of the node this is, and that
// no other process uses it.
//
//   run              text: the run's id, its seed, its shards, the node's starts so far
//   lock             held while a process uses the directory
//   ledger/, shard-0/, ...   logs and snapshots  (directory_journal.h)
//   contents/        contents of tasks           (storage/content_log.h)
//   segments/        payloads, and whose they are (storage/segment_store.h)
//
// Open and ReadIdentity block. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/disk.h"
#include "storage/log_lock.h"

namespace forebay::node {

struct RunIdentity {
  uint64_t run = 0;  // drawn when the directory was made
  uint64_t run_seed = 0;
  uint64_t shards = 1;
  uint64_t incarnation = 0;  // starts of the node so far, this one included
};

// "name: value" lines.
std::string EncodeIdentity(const RunIdentity& identity);
absl::StatusOr<RunIdentity> DecodeIdentity(std::string_view text);

// Of the run in a directory; nothing is changed. The error names the file.
absl::StatusOr<RunIdentity> ReadIdentity(io::Disk* disk, const std::string& path);

// A folder outside of the run's directory has such a file too, so that no other run takes what lies
// there for garbage. FailedPrecondition, naming both runs, if it is another's; it may not be there.
absl::Status CheckOwner(io::Disk* disk, const std::string& folder, const RunIdentity& identity);
// Makes the folder, which is there, the run's own.
absl::Status TakeFolder(io::Disk* disk, const std::string& folder, const RunIdentity& identity);

class DataDirectory {
 public:
  // Makes the directory if it is not there, locks it, and counts the start, durably. `wanted`: the
  // identity of a new run, and what an old one is held against: FailedPrecondition, naming the
  // entry, if seed or shards differ; Unavailable if another process has the directory.
  static absl::StatusOr<DataDirectory> Open(io::Disk* disk, const std::string& path,
                                            const RunIdentity& wanted);

  const std::string& path() const { return path_; }
  const RunIdentity& identity() const { return identity_; }
  // DataLoss, naming the directory, once it was deleted or moved away. Blocks for a look at it.
  absl::Status Check() const { return lock_.Check(); }

 private:
  DataDirectory(std::string path, RunIdentity identity, storage::DirectoryLock lock)
      : path_(std::move(path)), identity_(identity), lock_(std::move(lock)) {}

  std::string path_;
  RunIdentity identity_;
  storage::DirectoryLock lock_;
};

}  // namespace forebay::node
