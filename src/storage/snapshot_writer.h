// Writes snapshots of a machine's state, piece by piece: the next piece is asked for when the last
// one is written, so that a big state never is in memory twice.
//
// Lives in its owner's loop, as LogWriter does, with the same `post`; not thread-safe. Pieces are
// encoded and summed where `encode` runs them, which keeps the loop free. It may go at any moment,
// but not from within a callback of its own.
// A snapshot counts once it is renamed to its name and the directory is synced; a crash before
// leaves the older ones as they were. The last two are kept. Nothing is retried: a snapshot that
// fails is removed, and the next one comes when its owner wants it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "codec/snapshot_parts.h"
#include "io/disk.h"
#include "storage/log_writer.h"
#include "storage/snapshot_format.h"

namespace forebay::storage {

// The next piece, empty at the end: see codec::Part::Next.
using SnapshotPieces = std::function<codec::Piece()>;
// The pieces of a snapshot that is in memory as a whole.
SnapshotPieces PiecesOf(std::string bytes, size_t piece_bytes = size_t{1} << 20);

class SnapshotWriter {
 public:
  // Of the options it uses directory, name, epoch and incarnation. `encode` may run what it gets on
  // any thread, and may be `post` itself.
  SnapshotWriter(io::Disk* disk, const LogOptions& options, LogPost post, LogPost encode);
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // The first position that the log must keep, for LogWriter::TruncateBefore: the one after the
  // older of the two snapshots, so that it can stand in for a damaged one; 1 while there is but
  // one.
  using Done = absl::AnyInvocable<void(absl::StatusOr<LogPosition> keep_from)>;
  // The state as it was after the record at `position`, which is durable and above 0. Pieces are
  // asked for in the loop, later. Not while busy().
  void Write(LogPosition position, SnapshotPieces pieces, Done done);
  bool busy() const { return job_ != nullptr; }
  // Of the last snapshot that counts, as stored.
  uint64_t last_bytes() const { return last_bytes_; }
  std::string PathOf(LogPosition position) const;

 private:
  struct Job;  // shared with the disk's closures: buffers outlive the writer
  using Step = void (SnapshotWriter::*)();

  // An answer for the disk: goes on with `step` in the loop, or fails.
  io::Disk::Done Then(Step step);
  void WriteHead();
  void EncodePiece();
  void WritePiece();
  void WriteEnd();
  void Sync();
  void Rename();
  void SyncDirectory();
  void ListOlder();
  // Unlinks what is older than the last two.
  LogPosition KeepTwo(const std::vector<io::Entry>& entries) const;
  void Write(std::string bytes, Step then);
  void Finish(absl::StatusOr<LogPosition> keep_from);

  io::Disk* const disk_;
  const std::string directory_;
  const SnapshotHead head_;  // but for the position
  const LogPost post_, encode_;
  const std::shared_ptr<SnapshotWriter*> self_;  // null inside once the writer is gone
  std::shared_ptr<Job> job_;
  uint64_t last_bytes_ = 0;
};

}  // namespace forebay::storage
