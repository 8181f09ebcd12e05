// Makes records durable in a machine's log files: group commit, one synced write at a
// time; what arrives meanwhile is the next batch.
//
// Not thread-safe: it lives in its owner's loop and is called, and calls back, there alone. The
// disk's answers come on other threads and are handed over by `post`, which must stay callable
// until the disk is gone or answers no more. The writer may go at any moment, but not from within a
// callback of its own. Nothing is retried: the first error of a write, a sync or a new file ends
// the writer. What was durable stays so, nothing more becomes so.
//
// Callers have locked the directory (log_lock.h) and have run RecoverLog, which says where to go
// on.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "io/disk.h"
#include "storage/log_format.h"

namespace forebay::storage {

struct LogOptions {
  std::string directory;                     // exists; of this machine alone
  std::string name;                          // of the machine: "shard-3", "ledger"
  uint64_t file_bytes = uint64_t{64} << 20;  // a file that has grown to this is followed by another
  uint64_t batch_bytes_max = uint64_t{4} << 20;  // a longer record is a batch of its own
  uint64_t pending_bytes_max = uint64_t{64} << 20;
  uint64_t epoch = 0;
  uint64_t incarnation = 0;
  uint64_t nonce = 0;  // drawn at each start
};

// Runs a closure in the owner's loop, now or later; called from any thread.
using LogPost = std::function<void(absl::AnyInvocable<void()>)>;

struct LogEvents {
  std::function<void()> on_durable;             // durable() has risen
  std::function<void(absl::Status)> on_failed;  // once, with path, operation and errno
};

class LogWriter {
 public:
  // `next`: the position of the first record to come; `file_number`: of the first file to create
  // (RecoveredLog has both). Begins to create that file at once.
  LogWriter(io::Disk* disk, LogOptions options, LogPosition next, uint64_t file_number,
            LogPost post, LogEvents events);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Copies the record; positions follow each other. At most kLogRecordBytesMax bytes. After a
  // failure it is dropped.
  void Append(LogPosition position, std::string_view record);
  // Everything up to here is synced. Never goes back.
  LogPosition durable() const { return durable_; }
  // Of records that are not durable yet, as stored.
  uint64_t pending_bytes() const { return pending_bytes_; }
  // Whoever can make others wait, does so now. Append itself never refuses.
  bool full() const { return pending_bytes_ >= options_.pending_bytes_max; }
  uint64_t pending_bytes_max() const { return options_.pending_bytes_max; }
  // Ok, or why it has ended.
  const absl::Status& status() const { return status_; }

  // Records below are not needed any more (a snapshot is durable): unlinks the files that hold
  // nothing else, in the background. A file that cannot be unlinked stays until the next time.
  void TruncateBefore(LogPosition position);

  // Looks whether the file that is written still stands under its name, and fails if it was deleted
  // or moved away: what is synced to it would go with the process. The answer comes later.
  void LookForFile();

  // Counted since the start.
  struct Use {
    uint64_t batches = 0, records = 0;
    uint64_t bytes = 0;  // written, with heads and padding
    uint64_t files = 0;
  };
  const Use& use() const { return use_; }

 private:
  struct Flight;   // a batch on its way; owned by the disk's closures, so it outlives the writer
  struct NewFile;  // a file on its way
  enum class Busy : uint8_t { kNo, kCreating, kWriting };

  // Hands `work` over to the owner's loop, where it runs only if the writer is still there.
  static absl::AnyInvocable<void()> Alive(const std::shared_ptr<LogWriter*>& self,
                                          absl::AnyInvocable<void(LogWriter&)> work);
  void Begin();
  void CreateFile(LogPosition first);
  static void WriteHeader(const std::shared_ptr<NewFile>& created);
  static void SyncEntry(const std::shared_ptr<NewFile>& created);
  static void Answer(const std::shared_ptr<NewFile>& created, absl::Status status);
  void Created(const NewFile& created, absl::Status status);
  void WriteBatch();
  void Written(Flight& flight, absl::Status status);
  void Fail(absl::Status status);

  io::Disk* const disk_;
  const LogOptions options_;
  const LogPost post_;
  const LogEvents events_;
  const std::shared_ptr<LogWriter*> self_;  // null inside once the writer is gone

  absl::Status status_;
  LogPosition appended_, durable_;
  uint64_t pending_bytes_ = 0;
  std::deque<std::unique_ptr<LogBatchBuilder>> waiting_;  // only the last one grows
  std::unique_ptr<LogBatchBuilder> spare_;                // keeps its memory
  bool begin_posted_ = false;
  bool looking_ = false;
  Busy busy_ = Busy::kNo;

  io::FileRef file_;      // where the next batch goes; null before the first
  uint64_t file_number_;  // of file_, or of the one before the first
  uint64_t file_nonce_ = 0;
  uint64_t file_end_ = 0;
  Use use_;
};

}  // namespace forebay::storage
