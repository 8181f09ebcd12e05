// One operation on the data of a file: what is asked for, how far it got, and what follows from a
// system call's result.
//
// Owned by one thread at a time. Call runs the next system call and blocks; io_uring issues the
// same one from Rest. Either way the result goes to Advance, until that says that it is done.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "io/disk.h"
#include "io/meter.h"
#include "io/posix_file.h"

namespace forebay::io {

class Operation {
 public:
  enum class Kind : uint8_t { kRead, kWrite, kWriteSynced, kSync, kAllocate, kTruncate };

  Operation(Kind kind, std::shared_ptr<PosixFile> file, uint64_t offset)
      : kind_(kind), file_(std::move(file)), offset_(offset) {}

  // For reads and writes, before the first call.
  void AddPiece(char* data, size_t size);

  Kind kind() const { return kind_; }
  const PosixFile& file() const { return *file_; }
  // Bytes moved so far; all of them, or those up to the file's end, once Advance is done.
  size_t moved() const { return moved_; }
  // Of the file: where the next read or write begins; how far to allocate, where to truncate.
  uint64_t offset() const { return offset_ + from_; }
  // What the next read or write has to move.
  absl::Span<const iovec> Rest() const { return rest_.empty() ? pieces_ : rest_; }
  // The last call was interrupted or not possible without waiting.
  bool retried() const { return retries_ > 0; }

  // The next system call; its result, or -errno.
  int64_t Call();
  // Takes a call's result, or -errno; true when the operation is finished, else another call
  // follows.
  bool Advance(int64_t result);
  // Ok, or the error with operation and path.
  absl::Status Result() const;

  // Free for the disk; one of the two is set.
  Disk::Done done;
  Disk::DoneWith<size_t> done_reading;
  Meter::Ticket ticket;

 private:
  // An interrupted call is repeated that often before its error is told.
  static constexpr int kRetriesMax = 100;

  bool Fail(int error);
  // The next call begins there, relative to offset_.
  void Continue(size_t from);

  const Kind kind_;
  const std::shared_ptr<PosixFile> file_;
  const uint64_t offset_;
  std::vector<iovec> pieces_;
  std::vector<iovec> rest_;  // empty while nothing was moved
  size_t total_ = 0;
  size_t moved_ = 0;
  size_t from_ = 0;
  int retries_ = 0;
  int error_ = 0;
};

}  // namespace forebay::io
