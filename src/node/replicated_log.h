// The log of a machine that leads: what is appended is proposed to the replicas, and committed at
// their word. Snapshots of the state, for the disk and for peers.
//
// Belongs to the machine's loop; not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "codec/archive.h"
#include "node/log.h"
#include "node/machine_replica.h"

namespace forebay::node {

// What does not depend on the kind of machine.
class LeadingLog : public std::enable_shared_from_this<LeadingLog> {
 public:
  using SnapshotState = std::function<void(codec::Writer&)>;
  LeadingLog(std::shared_ptr<MachineReplica> replica, LogOwner owner, SnapshotState snapshot,
             LogPosition applied);

  void Append(LogPosition position, std::string command);
  void Applied(LogPosition position);
  void Snapshot(LogPosition position, SnapshotDone done);
  // To a peer, of the state as it is; called between two commands.
  void Send(cluster::NodeId to);
  // The loop has let go of the log.
  void End() {
    ended_ = true;
    snapshots_.reset();
  }

  MachineReplica& replica() { return *replica_; }
  uint64_t batch_bytes() const { return batch_bytes_; }

 private:
  void Flush();
  void Take(LogPosition position);
  void Write(LogPosition record, std::shared_ptr<codec::Parts> parts, std::string head);
  void Answer(const absl::StatusOr<SnapshotPlace>& place);

  const std::shared_ptr<MachineReplica> replica_;
  const LogOwner owner_;
  const SnapshotState snapshot_state_;
  std::unique_ptr<storage::SnapshotWriter> snapshots_;
  bool ended_ = false;
  LogPosition last_;                // appended
  LogPosition applied_;             // of the state, between two commands
  std::vector<std::string> batch_;  // of one turn of the loop
  uint64_t batch_bytes_ = 0;
  bool taking_ = false;  // a snapshot is under way
  SnapshotTaken taken_;
  std::vector<SnapshotDone> asked_, answering_;
};

template <class Command>
class ReplicatedLog final : public Log<Command> {
 public:
  explicit ReplicatedLog(std::shared_ptr<LeadingLog> log) : log_(std::move(log)) {}
  ~ReplicatedLog() override { log_->End(); }

  void Append(LogPosition position, const Command& command) override {
    log_->Append(position, codec::Encode(command));
  }
  LogPosition committed() const override { return log_->replica().committed(); }
  LogQueue queue() const override {
    return {.bytes = log_->batch_bytes() + log_->replica().pending_bytes(),
            .bytes_max = log_->replica().pending_bytes_max(),
            .replicated = true};
  }
  void Look(absl::AnyInvocable<void()> done) override {
    log_->replica().LookAtLog(std::move(done));
  }
  void Applied(LogPosition position) override { log_->Applied(position); }
  void Snapshot(LogPosition position, SnapshotDone done) override {
    log_->Snapshot(position, std::move(done));
  }

 private:
  const std::shared_ptr<LeadingLog> log_;
};

}  // namespace forebay::node
