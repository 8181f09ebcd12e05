// Where a run's data lies: in memory alone, or in a directory from which it goes on after any end
// of the process.
//
// Thread-safe after Open. It outlives the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "io/disk.h"
#include "node/absent_machines.h"
#include "node/config.h"
#include "node/data_directory.h"
#include "node/directory_journal.h"
#include "node/engine.h"
#include "node/serial.h"
#include "server/storage_files.h"
#include "server/ticker.h"
#include "storage/content_log.h"
#include "storage/content_store.h"
#include "storage/payload_store.h"
#include "storage/segment_store.h"

namespace forebay::server {

class ClusterRun;

class RunStorage final : public node::DeadBytes {
 public:
  // `failed`: called when a log has failed, so that nothing is committed any more. `cluster`: of a
  // node of several; it outlives the storage.
  using Failed = std::function<void(std::string_view log, const absl::Status&)>;
  static absl::StatusOr<std::unique_ptr<RunStorage>> Open(const node::Config& config,
                                                          uint64_t new_run, Failed failed,
                                                          ClusterRun* cluster = nullptr);

  ~RunStorage() override;

  storage::PayloadStore* payloads() { return payloads_.get(); }
  storage::ContentStore* contents() { return &contents_; }
  // Null: in memory.
  node::Journal* journal();
  // Of a cluster's node: opens its replicas. Before it leads; then the store is of that reign.
  absl::Status Follow(node::Engine* engine, std::function<void(const node::AbsentMachines&)> lead,
                      std::function<void(const std::string&)> deposed);
  void SetEpoch(uint64_t epoch) { segments_->SetEpoch(epoch); }
  uint64_t run() const { return run_; }
  // Of a run in memory "".
  const std::string& directory() const { return directory_; }
  const storage::SegmentStore* segments() const { return segments_; }
  // Of a run in a directory: its disks, and what lies on them. Null for one in memory.
  const io::Disk* log_disk() const { return log_disk_.get(); }
  const io::Disk* segment_disk() const { return segment_disk_.get(); }
  FileSites sites() const;
  // Records of task contents that wait to be synced; called within their loop, later.
  void AskContentsQueue(absl::AnyInvocable<void(node::LogQueue)> done);

  // Stores task contents: all or none. `done` is called once, when they are as safe as the run is.
  // While their log is full the call waits, or is refused Unavailable.
  using Added = absl::AnyInvocable<void(absl::StatusOr<std::vector<PayloadId>>)>;
  enum class WhenFull : uint8_t { kRefuse, kWait };
  void AddContents(std::vector<std::string> items, WhenFull when_full, Added done);
  // Before a clean end, when nothing is pushed any more: leaves the payloads' files so that the
  // next start is quick. False if that took longer than `most`.
  bool Seal(absl::Duration most);
  // At a clean end: see Engine::LookAtLogs.
  void LookAtContents(absl::AnyInvocable<void()> done);
  // Before the end, when Tick is not called any more: how many operations on the payloads' files
  // are still under way after at most `most`.
  uint64_t AwaitDisk(absl::Duration most) const;
  // Looks at what takes too long; every 10 ms or so.
  void Tick();
  // What snapshots of one machine cost since the start; pause: that its loop stood still.
  struct SnapshotUse {
    uint64_t taken = 0;
    uint64_t failed = 0;
    double pause_seconds_sum = 0;
    double pause_seconds_max = 0;
    node::SnapshotTaken last;
  };
  std::map<std::string, SnapshotUse, std::less<>> snapshots() const {
    MutexLock lock(&snapshots_mutex_);
    return snapshots_;
  }
  // What was found at the start, for the daemon's log.
  std::vector<std::string> notes() const { return notes_; }
  std::vector<std::string> losses() const { return losses_; }
  // Payloads that were acknowledged, and not found at the start.
  const std::vector<storage::LostPayload>& lost() const { return lost_; }

  void FreePayloads(const std::vector<PayloadId>& ids) override { payloads_->Free(ids); }
  void FreeContents(const std::vector<PayloadId>& ids) override { contents_.Kill(ids); }
  void Want(StepId step, std::vector<PayloadId> ids) override {
    payloads_->Want(step, std::move(ids));
  }
  void Cool(const std::vector<PayloadId>& ids) override { payloads_->Cool(ids); }
  uint64_t RetentionBytesMax() const override { return retention_bytes_max_; }
  void SetRetentionBytesMax(uint64_t bytes) { retention_bytes_max_ = bytes; }
  bool StoreFull() const override { return segments_ != nullptr && segments_->full(); }
  // As the configuration says, or less, when what is kept holds too much of the disk.
  codec::KeepRule Keep(uint64_t kept_bytes) override;
  uint64_t KeptBytesMax() const {
    MutexLock lock(&keep_mutex_);
    return keep_.bytes_max;
  }
  void SetKeep(const codec::KeepRule& rule) {
    MutexLock lock(&keep_mutex_);
    keep_ = rule;
  }
  uint64_t FreePayloadBytes() const override;
  // With a disk behind it memory limits no step.
  uint64_t PayloadBytesMax() const override {
    return segments_ != nullptr ? 0 : payloads_->budget().use().bytes_max;
  }
  absl::StatusOr<std::vector<PayloadId>> Recovered(const Named& named) override;

 private:
  RunStorage(const node::Config& config, uint64_t run, ClusterRun* cluster);
  absl::Status OpenDirectory(const node::Config& config, const Failed& failed);
  absl::StatusOr<storage::RecoveredContents> RecoverContents(const std::vector<PayloadId>& named);
  void OpenContents(storage::RecoveredContents recovered, bool compact);
  void LetContentsIn();
  // Whether what is written to still stands under its name.
  void LookForFiles();
  void BoundKept();
  // Says in the log when the store's trouble begins, changes its kind or ends.
  void LookAtTrouble();
  void OnSnapshot(std::string_view machine, const absl::StatusOr<node::SnapshotTaken>& taken);

  uint64_t run_;
  ClusterRun* const cluster_;  // null: the daemon is alone
  const uint64_t task_bytes_max_;
  std::atomic<uint64_t> retention_bytes_max_;
  mutable Mutex keep_mutex_;
  codec::KeepRule keep_ ABSL_GUARDED_BY(keep_mutex_);
  const uint64_t segment_bytes_;
  uint64_t kept_bytes_ ABSL_GUARDED_BY(keep_mutex_) = 0;
  uint64_t kept_bytes_bound_ ABSL_GUARDED_BY(keep_mutex_) = UINT64_MAX;
  std::string directory_;
  std::vector<std::string> notes_;
  std::vector<std::string> losses_;  // acknowledged, and not found at the start
  std::vector<storage::LostPayload> lost_;
  // Disks go last: they wait for what is under way.
  Ticker timer_;  // of the segment store
  std::unique_ptr<io::Disk> log_disk_, segment_disk_;
  std::optional<node::DataDirectory> data_;
  uint64_t nonce_ = 0;
  storage::ContentStore contents_;
  std::unique_ptr<storage::PayloadStore> payloads_;
  storage::SegmentStore* segments_ = nullptr;  // payloads_, when it is one
  std::unique_ptr<node::DirectoryJournal> journal_;
  const std::shared_ptr<node::Serial> contents_serial_ = std::make_shared<node::Serial>();
  Failed failed_;
  storage::LogOptions content_options_;
  std::unique_ptr<storage::ContentLog> content_log_;                      // from Recovered on
  std::deque<std::pair<std::vector<std::string>, Added>> contents_held_;  // in its loop
  uint64_t look_due_ms_ = 0, trouble_due_ms_ = 0;                         // Tick's
  std::string trouble_kind_;                                              // likewise
  mutable Mutex snapshots_mutex_;
  std::map<std::string, SnapshotUse, std::less<>> snapshots_
      ABSL_GUARDED_BY(snapshots_mutex_);  // by machine
};

// What makes two tasks of one id the same task.
uint64_t TaskContentHash(std::string_view payload, std::string_view attributes);

}  // namespace forebay::server
