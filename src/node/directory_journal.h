// The journal in a directory of a local file system: for each machine a log and snapshots.
//
//   <directory>/ledger/, <directory>/shard-0/, ...
//
// Its disk, with ring and threads, is its own, and so is the thread on which snapshots are encoded,
// but in virtual time. Open and Recover block; the logs belong to their loops, and go before the
// journal does. The directory is locked by the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/disk.h"
#include "io/workers.h"
#include "node/journal.h"
#include "node/machine_log.h"
#include "storage/log_recovery.h"
#include "storage/log_writer.h"

namespace forebay::node {

struct JournalOptions {
  std::string directory;
  uint64_t incarnation = 0;  // of this node; rises with each start
  uint64_t nonce = 0;        // drawn at each start
  uint64_t log_file_bytes = uint64_t{64} << 20;
  uint64_t log_pending_bytes_max = uint64_t{64} << 20;  // of a log; see LogQueue
  // A snapshot is taken when the log has grown by this since the last one.
  uint64_t snapshot_log_bytes = uint64_t{256} << 20;
  // Called once, from a loop, when a log has failed: from then on nothing is committed.
  std::function<void(std::string_view machine, const absl::Status&)> failed;
  // Called from a machine's loop when a snapshot of it is done, or has failed. May be empty.
  std::function<void(std::string_view machine, const absl::StatusOr<SnapshotTaken>&)> snapshot;
  // In virtual time, both or neither: runs an event while a call blocks (storage/log_blocking.h),
  // and runs what encodes snapshots. Without them calls wait, and a thread encodes.
  std::function<bool()> turn;
  storage::LogPost encode;
};

// For status, metrics and the daemon's log.
struct RecoveredMachine {
  std::string name;
  storage::RecoveredLog log;
};

class DirectoryJournal final : public Journal {
 public:
  // `disk` outlives the journal.
  DirectoryJournal(io::Disk* disk, JournalOptions options);
  ~DirectoryJournal() override;

  absl::StatusOr<LogPosition> Recover(shard::State* state) override;
  absl::StatusOr<LogPosition> Recover(ledger::State* state) override;
  absl::StatusOr<std::unique_ptr<Log<shard::Command>>> OpenLog(const shard::State& state,
                                                               LogPosition applied,
                                                               LogOwner owner) override;
  absl::StatusOr<std::unique_ptr<Log<ledger::Command>>> OpenLog(const ledger::State& state,
                                                                LogPosition applied,
                                                                LogOwner owner) override;

  const std::vector<RecoveredMachine>& recovered() const { return recovered_; }
  // Where snapshots are encoded. Thread-safe; what comes after the journal's end is dropped.
  storage::LogPost encode();

 private:
  template <class Command, class State>
  absl::StatusOr<LogPosition> RecoverMachine(State* state);
  template <class Command, class State>
  absl::StatusOr<std::unique_ptr<Log<Command>>> OpenMachine(const State& state, LogPosition applied,
                                                            LogOwner owner);
  std::string PathOf(const std::string& name) const;

  io::Disk* const disk_;
  const JournalOptions options_;
  std::vector<RecoveredMachine> recovered_;
  // One for all machines: their snapshots come one after another.
  std::shared_ptr<io::Workers> encoder_;
};

}  // namespace forebay::node
