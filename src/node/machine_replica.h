// A replica of one machine at work: drives replication/replica.h with a log on disk, snapshots, a
// transport to its peers and the coordinator's word.
//
// While it follows, the state is applied to within the replica's own loop. TakeState hands the
// state over to the machine's loop, for the rest of the process: from then on what is committed is
// only told, and the end of the reign ends the process (`deposed`). Thread-safe; what it is given
// outlives it, but for ports that may be called until Close has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/disk.h"
#include "node/journal.h"
#include "node/machine_log.h"
#include "node/peer_transport.h"
#include "node/replica_record.h"
#include "node/replicated_state.h"
#include "node/serial.h"
#include "replication/replica.h"
#include "storage/log_mark.h"
#include "storage/log_recovery.h"
#include "storage/log_writer.h"
#include "storage/snapshot_writer.h"

namespace forebay::node {

struct MachineReplicaOptions {
  storage::LogOptions log;  // its directory is this machine's alone
  uint64_t snapshot_log_bytes = uint64_t{256} << 20;
  // Contents of tasks only grow: a snapshot is worth it when the log is as large as the last one.
  bool snapshot_doubles = false;
  cluster::NodeId node;
  cluster::Incarnation known;  // the last one that the coordinator has of this replica; 0: none
  replication::Options replication;
};

struct MachineReplicaPorts {
  PeerTransport* peers = nullptr;
  // Answered once, from any thread.
  std::function<void(const replication::Swap&,
                     absl::AnyInvocable<void(const replication::SwapAnswer&)>)>
      swap;
  // Of one that leads: its reign is over.
  std::function<void()> deposed;
  // It has stopped, and stays so: its log has failed (`disk`), or it saw what breaks the protocol.
  std::function<void(const absl::Status&, bool disk)> failed;
  // Where it is decided who leads; for the daemon's log.
  std::function<void(const replication::RoleChange&)> role_changed;
  std::function<void(const absl::StatusOr<SnapshotTaken>&)> snapshot;
  storage::LogPost encode;  // see SnapshotWriter
};

// For status, metrics and decisions.
struct ReplicaView {
  replication::Role role = replication::Role::kBackup;
  bool serving = false, failed = false;
  cluster::Epoch epoch;
  cluster::NodeId leader;
  cluster::Incarnation incarnation;
  LogPosition last, synced, committed, applied;
  cluster::ConfigurationRevision revision;
  cluster::Configuration configuration;
};

class MachineReplica : public std::enable_shared_from_this<MachineReplica> {
 public:
  // Reads what is on the disk, into the state; blocks. A log that is damaged is moved aside, and
  // said in the notes: the replica begins empty, as another incarnation.
  static absl::StatusOr<std::shared_ptr<MachineReplica>> Open(io::Disk* disk,
                                                              MachineReplicaOptions options,
                                                              MachineReplicaPorts ports,
                                                              ReplicatedState* state);
  // Afterwards nothing is called any more. Not from within the replica's loop.
  void Close();

  const std::string& name() const { return options_.log.name; }
  const std::vector<std::string>& notes() const { return notes_; }
  // Whether the log was empty at the start.
  bool empty() const { return empty_; }
  cluster::Incarnation incarnation() const { return self_.incarnation; }

  void OnConfiguration(cluster::ConfigurationRevision revision, cluster::Configuration value);
  void OnMessage(std::string_view bytes);
  std::unique_ptr<SnapshotReceiver> OnSnapshot(std::string_view head);
  void Tick();
  // See replication::Replica::SetPaused.
  void SetPaused(bool paused);
  void HandOver(cluster::NodeId to, absl::AnyInvocable<void(absl::Status)> done);
  void Leave();
  void Look(absl::AnyInvocable<void(const ReplicaView&)> done);

  // --- Of the primary ---

  bool serving() const { return serving_.load(std::memory_order_acquire); }
  LogPosition committed() const { return LogPosition(committed_.load(std::memory_order_acquire)); }
  uint64_t pending_bytes() const { return pending_bytes_.load(std::memory_order_relaxed); }
  uint64_t pending_bytes_max() const { return options_.log.pending_bytes_max; }

  // Whose loop has the state from now on.
  struct Leader {
    LogOwner owner;
    // Within the owner's loop: a snapshot of the state for a peer is wanted. OnSnapshotEnded
    // follows.
    std::function<void(cluster::NodeId)> send_snapshot;
  };
  // Takes the state from the replica, which serves: where it is. Blocks. Unavailable if the replica
  // does not serve any more.
  absl::StatusOr<LogPosition> TakeState();
  void SetLeader(Leader leader);
  // In their order. They stay in the process until they are committed, or it ends.
  void Propose(std::vector<std::string> commands);
  // The state that was taken is here.
  void Applied(LogPosition position);
  // What a snapshot at this position is: its place in the history, and the record that it stands
  // for.
  void AskPlace(LogPosition position,
                absl::AnyInvocable<void(replication::LogPlace, LogPosition record)> done);
  void OnSnapshotTaken(LogPosition keep_from, LogPosition record, LogPosition position);
  void OnSnapshotEnded(cluster::NodeId to);  // see replication::Replica
  bool WantsSnapshot();
  // Of a state that follows: proposed by whom it serves, and told when it is applied.
  using OnApplied = absl::AnyInvocable<void(absl::Status)>;
  // Of a state that stays here while the node leads: the end of the reign is told as well.
  void Lead();
  void ProposeOwn(std::string command, OnApplied done);

  void LookAtLog(absl::AnyInvocable<void()> done);
  io::Disk* disk() const { return disk_; }
  const MachineReplicaOptions& options() const { return options_; }
  const MachineReplicaPorts& ports() const { return ports_; }

 private:
  class Receiver;
  struct Unsynced {
    LogPosition record;
    replication::LogGeneration generation;
    LogPosition entry;
  };
  struct Install {
    replication::LogPlace base;
    std::string bytes;  // of the snapshot, with its head
    LogPosition record;
    absl::AnyInvocable<void(absl::Status)> done;
  };

  MachineReplica(io::Disk* disk, MachineReplicaOptions options, MachineReplicaPorts ports,
                 ReplicatedState* state);
  absl::Status Recover();
  absl::Status MoveAside(const absl::Status& why);
  absl::Status Identify(bool cut, bool lost);
  void OpenFiles(const storage::RecoveredLog& log);
  // Runs it in the loop, as long as the replica is not closed.
  template <class F>
  void InLoop(F work) {
    serial_->Post([self = shared_from_this(), work = std::move(work)]() mutable {
      if (!self->closed_) work(*self);
    });
  }
  // Every pause counts: who stood still must see that it did.
  static uint64_t SteadyMs();

  // Within the loop.
  void Pump();
  void Do(replication::Output output);
  void Write(const replication::LogWrite& write);
  void Record();
  void OnDurable();
  bool ApplyCommitted();
  void SubmitProposed();
  void EndReign();
  void Tell();
  void SendOwnSnapshot(cluster::NodeId to);
  uint64_t LogBytes() const { return recovered_bytes_ + writer_->use().bytes; }
  bool SnapshotIsDue() const;
  bool Refuses(replication::LogPlace base) const;
  void TakeSnapshot();
  void BeginInstall(replication::LogPlace base, std::string bytes,
                    absl::AnyInvocable<void(absl::Status)> done);
  void ContinueInstall();
  void EndInstall(absl::StatusOr<LogPosition> keep_from);
  void Fail(const absl::Status& status, bool disk);

  io::Disk* const disk_;
  const MachineReplicaOptions options_;
  const MachineReplicaPorts ports_;
  ReplicatedState* const state_;
  replication::Identity self_;
  std::vector<std::string> notes_;
  bool empty_ = true;
  const std::shared_ptr<Serial> serial_ = std::make_shared<Serial>();
  std::atomic<bool> serving_{false};
  std::atomic<bool> tick_posted_{false};
  std::atomic<bool> snapshot_wanted_{false};
  std::atomic<uint64_t> committed_{0};
  std::atomic<uint64_t> pending_bytes_{0};

  // Of the loop.
  bool closed_ = false;
  std::optional<replication::Replica> replica_;
  std::unique_ptr<storage::LogWriter> writer_;
  std::unique_ptr<storage::SnapshotWriter> snapshots_;  // while the state is here
  std::unique_ptr<storage::LogMarker> marker_;
  EntryPlaces places_;
  LogPosition record_;  // the last one that was appended
  std::deque<Unsynced> unsynced_;
  std::string bytes_;  // keeps its memory
  LogPosition applied_;
  bool apply_posted_ = false;
  bool leads_ = false;
  bool over_ = false;         // it led, and another does now: what was proposed here means nothing
  bool handed_over_ = false;  // the state
  Leader leader_;             // from then on, once it is set
  std::deque<std::string> proposed_;  // that the replica has not taken yet
  uint64_t proposed_bytes_ = 0;
  std::deque<std::pair<LogPosition, OnApplied>> waiting_;  // of ProposeOwn
  std::deque<std::pair<std::string, OnApplied>> own_;      // likewise, that are not taken yet
  uint64_t recovered_bytes_ = 0, snapshot_at_ = 0, snapshot_bytes_ = 0;
  LogPosition snapshot_record_;  // of the last snapshot
  std::optional<Install> install_;
};

}  // namespace forebay::node
