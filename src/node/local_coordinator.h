// The coordinator of a node that is alone: one file on its own disk, written anew as a whole for
// each transaction that changes something, and synced before that is told.
//
// Thread-safe, as coordinator.h has it. The folder is its own and is locked against a second
// process. When it is not known whether a file was replaced, nothing is answered any more but that
// error: the next start reads what is there.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "io/disk.h"
#include "node/callback_gate.h"
#include "node/coordinator.h"
#include "node/coordinator_file.h"
#include "node/event_loop.h"
#include "storage/log_lock.h"

namespace forebay::node {

class LocalCoordinator final : public Coordinator {
 public:
  // Changes that are kept for watches from a revision.
  static constexpr size_t kHistoryMax = 1024;
  static constexpr size_t kHistoryBytesMax = 16 << 20;

  // Makes the folder if it is not there, and blocks. Unavailable if another process has it,
  // DataLoss if its file is damaged: the error names it, and nothing is changed.
  static absl::StatusOr<std::unique_ptr<LocalCoordinator>> Open(io::Disk* disk,
                                                                const std::string& folder);
  ~LocalCoordinator() override;

  void Get(std::string key, absl::Duration timeout, StateDone done) override;
  void GetPrefix(std::string prefix, absl::Duration timeout, StateDone done) override;
  void Commit(Transaction transaction, absl::Duration timeout, TransactionDone done) override;
  absl::StatusOr<std::unique_ptr<Watch>> WatchPrefix(WatchOptions options,
                                                     WatchCallback callback) override;
  absl::StatusOr<std::unique_ptr<Presence>> Announce(PresenceOptions options,
                                                     PresenceCallback callback) override;
  CoordinatorHealth Health() const override;

 private:
  class WatchHandle;
  class PresenceHandle;
  using Gate = CallbackGate<WatchEvent>;

  // A transaction on its way; `done` is empty once it is answered.
  struct Pending {
    Transaction transaction;
    TransactionDone done;
    EventLoop::TimerId timer{};
    uint64_t presence = 0;   // that its puts belong to
    bool farewell = false;   // deletes keys only if they still belong to `presence`
    std::string disk_bytes;  // the file, while it is written
    LocalKeys after;
  };
  struct Watched {
    std::string prefix;
    std::shared_ptr<Gate> gate;
  };

  LocalCoordinator(io::Disk* disk, std::string folder, storage::DirectoryLock lock, LocalKeys keys);

  // False, and the refusal is told, if there are too many calls.
  template <class Refuse>
  bool Admit(Refuse refuse);
  void Enqueue(std::shared_ptr<Pending> pending, absl::Duration timeout);

  // --- on the loop ---
  void Next();
  // Whether it must be written; else it is answered.
  bool Decide(Pending* pending);
  void Write(std::shared_ptr<Pending> pending);
  void Written(Pending* pending, Outcome outcome, const absl::Status& status);
  void Answer(Pending* pending, TransactionResult result);
  void TimedOut(Pending* pending, bool is_written);
  void Tell(uint64_t revision_before);
  void StartWatch(const WatchOptions& options, const std::shared_ptr<Gate>& gate);
  void Remember(const LocalKeys& before, const Transaction& transaction);

  io::Disk* const disk_;
  const std::string folder_;
  const storage::DirectoryLock lock_;
  std::atomic<size_t> calls_{0};
  std::atomic<size_t> watches_count_{0};
  std::atomic<size_t> presences_count_{0};
  std::atomic<uint64_t> ids_{0};

  // Of the loop's thread.
  LocalKeys keys_;
  std::deque<WatchedChange> history_;  // all changes after `forgotten_`
  size_t history_bytes_ = 0;
  uint64_t forgotten_ = 0;
  std::deque<std::shared_ptr<Pending>> queue_;
  std::shared_ptr<Pending> writing_;
  bool closing_ = false;
  std::map<uint64_t, Watched> watches_;

  mutable Mutex health_mutex_;
  absl::Status broken_ ABSL_GUARDED_BY(health_mutex_);
  Deadline broken_since_ ABSL_GUARDED_BY(health_mutex_);

  const std::unique_ptr<EventLoop> loop_;
  const std::unique_ptr<EventLoop> writer_;  // blocks on the disk
};

}  // namespace forebay::node
