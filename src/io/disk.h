// Files as the log and the segment store use them: every operation is asynchronous, every one is
// answered exactly once.
//
// Implementations: io_uring (uring_disk.h), a pool of threads (pool_disk.h), and the simulator's
// disk in virtual time. Thread-safe. `done` runs on a thread of the disk, without a lock held,
// before the call returns only if the call is refused for its arguments (InvalidArgument, EINVAL);
// it must not block and may call the disk again.
// A started operation cannot be cancelled: buffers belong to the disk until `done`, however long
// that takes. Operations run in no order unless one is started from the other's `done`.
//
// Errors carry the path, the operation and errno's name; ErrorOf gives the number back. A short
// write or read is completed by the disk itself: `done` sees all of it, or an error. Nothing is
// retried: after a failed Sync what was written since the last good one is unknown, for ever.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace forebay::io {

// The errno behind a status that a Disk gave; 0 if there is none.
int ErrorOf(const absl::Status& status);
// A status for an errno, with `what` ("write /path: ENOSPC, No space left on device").
absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path);
// The same with words of one's own in place of the errno's text.
absl::Status ErrnoStatus(int error, std::string_view operation, std::string_view path,
                         std::string_view why);

// A piece of memory to write from.
struct ConstBuffer {
  const char* data = nullptr;
  size_t size = 0;
};

// An open file. Closed when the last reference is gone and no operation uses it.
class File {
 public:
  virtual ~File() = default;
  virtual const std::string& path() const = 0;
  // True when reads and writes bypass the page cache; then memory, offsets and sizes must be
  // multiples of kAlignment.
  virtual bool direct() const = 0;
};
using FileRef = std::shared_ptr<File>;

inline constexpr size_t kAlignment = 4096;

enum class OpenMode : uint8_t {
  kRead,
  kCreate,  // for reading and writing; fails with EEXIST if there is such a file
  kWrite,   // for reading and writing; the file must exist
};

struct OpenOptions {
  OpenMode mode = OpenMode::kRead;
  bool direct = false;  // where the file system takes it; File::direct() says whether it did
};

struct Entry {
  std::string name;
  uint64_t bytes = 0;
};

struct Space {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;  // for this user
};

// From an operation's start to its end. Zero in virtual time.
struct OperationTime {
  double recent_ms = 0;   // mean of the newest ones, decayed
  double slowest_ms = 0;  // since the start
};

// Counted since the start.
struct DiskUse {
  uint64_t reads = 0, read_bytes = 0;
  uint64_t writes = 0, written_bytes = 0;
  uint64_t syncs = 0;  // a WriteSynced is a write, and a sync too
  OperationTime read_time, write_time, sync_time;
  uint64_t errors = 0;     // also files that were looked for and are not there
  uint64_t in_flight = 0;  // operations now
  uint64_t oldest_ms = 0;  // how long the oldest of them has been running
};

class Disk {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  template <class T>
  using DoneWith = absl::AnyInvocable<void(absl::StatusOr<T>)>;

  // Waits for operations that are running, and for those that their `done` starts. Not from within
  // a `done`. Files may outlive the disk.
  virtual ~Disk() = default;

  // "io_uring" or "threads"; for logs and status.
  virtual std::string_view name() const = 0;

  // --- data ---
  // Writes the pieces one after another from `offset`; at most kPiecesMax.
  static constexpr size_t kPiecesMax = 256;
  virtual void Write(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces, Done done) = 0;
  // The same, and what it wrote is durable then, as after a Sync; nothing is said of other writes.
  // Cheaper than both. After an error it is as unknown as after a failed Sync.
  virtual void WriteSynced(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces,
                           Done done) = 0;
  // Fills the pieces one after another; at most kPiecesMax. The result is the bytes read, fewer
  // only at the file's end.
  virtual void ReadPieces(FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                          DoneWith<size_t> done) = 0;
  // The same of one piece.
  void Read(FileRef file, uint64_t offset, absl::Span<char> to, DoneWith<size_t> done) {
    ReadPieces(std::move(file), offset, {to}, std::move(done));
  }
  // fdatasync.
  virtual void Sync(FileRef file, Done done) = 0;
  // Makes room for `bytes` from the start without changing contents or length that is read.
  virtual void Allocate(FileRef file, uint64_t bytes, Done done) = 0;
  virtual void Truncate(FileRef file, uint64_t bytes, Done done) = 0;

  // --- names; run one after another on one thread, apart from the data ---
  virtual void Open(std::string path, OpenOptions options, DoneWith<FileRef> done) = 0;
  virtual void Size(FileRef file, DoneWith<uint64_t> done) = 0;
  virtual void Rename(std::string from, std::string to, Done done) = 0;
  virtual void Unlink(std::string path, Done done) = 0;
  // Parents are created too, and all that is created is durable; no error if it exists.
  virtual void MakeDirectory(std::string path, Done done) = 0;
  virtual void SyncDirectory(std::string path, Done done) = 0;
  // Plain files, by name; over a network as the server has them now.
  virtual void List(std::string path, DoneWith<std::vector<Entry>> done) = 0;
  virtual void SpaceOf(std::string path, DoneWith<Space> done) = 0;

  virtual DiskUse use() const = 0;
};

struct DiskOptions {
  uint32_t queue_depth = 64;
  uint32_t workers_max = 8;  // io-wq workers, or threads of the pool
  bool allow_uring = true;
};

// io_uring where the kernel allows it, else threads; says in `why` what was chosen and why. Each
// disk has a ring and threads of its own: the log and the store never share one.
std::unique_ptr<Disk> NewDisk(const DiskOptions& options, std::string* why);

}  // namespace forebay::io
