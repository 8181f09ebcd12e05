// Snapshots of a replica: its own, those that it sends, and those that it takes from a peer.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/sync.h"
#include "codec/snapshot_parts.h"
#include "node/machine_replica.h"
#include "node/send_parts.h"

namespace forebay::node {
namespace {

using replication::LogPlace;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

bool MachineReplica::SnapshotIsDue() const {
  uint64_t due = options_.snapshot_log_bytes;
  if (options_.snapshot_doubles) due = std::max(due, snapshot_bytes_);
  const LogPosition record = places_.RecordOf(applied_, record_);
  return LogBytes() - snapshot_at_ >= due && record > snapshot_record_ &&
         record <= writer_->durable();
}

bool MachineReplica::WantsSnapshot() { return snapshot_wanted_.exchange(false); }

void MachineReplica::AskPlace(
    LogPosition position,
    absl::AnyInvocable<void(replication::LogPlace, LogPosition record)> done) {
  InLoop([position, done = std::move(done)](MachineReplica& self) mutable {
    done({self.replica_->log().EpochAt(position), position},
         self.places_.RecordOf(position, self.record_));
  });
}

void MachineReplica::OnSnapshotTaken(LogPosition keep_from, LogPosition record,
                                     LogPosition position) {
  InLoop([keep_from, record, position](MachineReplica& self) {
    self.snapshot_record_ = std::max(self.snapshot_record_, record);
    self.places_.Forget(position);
    self.writer_->TruncateBefore(keep_from);
  });
}

// Of a state that is here.
void MachineReplica::TakeSnapshot() {
  if (handed_over_ || snapshots_->busy() || install_) return;
  snapshot_at_ = LogBytes();
  const LogPlace base{replica_->log().EpochAt(applied_), applied_};
  const LogPosition record = places_.RecordOf(applied_, record_);
  const auto begin = std::chrono::steady_clock::now();
  auto parts = std::make_shared<codec::Parts>();
  std::string head = EncodeSnapshotHead(base);
  parts->writer().Bytes(head.data(), head.size());
  state_->Snapshot(parts->writer());
  SnapshotTaken taken{.position = applied_, .pause_seconds = SecondsSince(begin)};
  snapshots_->Write(
      record, [parts] { return parts->Next(); },
      [this, begin, base, record, taken,
       copies = parts->copies()](absl::StatusOr<LogPosition> keep_from) mutable {
        if (!keep_from.ok()) return ports_.snapshot(keep_from.status());
        snapshot_record_ = record;
        places_.Forget(base.position);
        writer_->TruncateBefore(*keep_from);
        taken.bytes = snapshot_bytes_ = snapshots_->last_bytes();
        taken.seconds = SecondsSince(begin);
        taken.copied_bytes = copies->bytes;
        ports_.snapshot(taken);
      });
}

// Of a state that is here: the pieces are made in the loop, and encoded by the transport.
void MachineReplica::SendOwnSnapshot(cluster::NodeId to) {
  if (applied_ == LogPosition()) return replica_->OnSnapshotEnded(to);
  const LogPlace base{replica_->log().EpochAt(applied_), applied_};
  auto parts = std::make_shared<codec::Parts>();
  state_->Snapshot(parts->writer());
  SendParts(
      ports_.peers, to, name(), EncodeSnapshotHead(base), std::move(parts),
      [serial = serial_](auto work) { serial->Post(std::move(work)); },
      [self = shared_from_this(), to] { self->OnSnapshotEnded(to); });
}

void MachineReplica::OnSnapshotEnded(cluster::NodeId to) {
  InLoop([to](MachineReplica& self) { self.replica_->OnSnapshotEnded(to); });
}

class MachineReplica::Receiver final : public SnapshotReceiver {
 public:
  Receiver(std::shared_ptr<MachineReplica> replica, LogPlace base, std::string_view head)
      : replica_(std::move(replica)), base_(base), bytes_(head) {}

  bool Chunk(std::string_view chunk) override {
    bytes_.append(chunk);
    return !replica_->Refuses(base_);
  }
  absl::Status End() override {
    Notification over;
    absl::Status status = absl::UnavailableError("the daemon ends");
    replica_->serial_->Post([&] {
      if (replica_->closed_) return over.Notify();
      replica_->BeginInstall(base_, std::move(bytes_), [&](absl::Status answer) {
        status = std::move(answer);
        over.Notify();
      });
    });
    over.Wait();
    return status;
  }

 private:
  const std::shared_ptr<MachineReplica> replica_;
  const LogPlace base_;
  std::string bytes_;
};

std::unique_ptr<SnapshotReceiver> MachineReplica::OnSnapshot(std::string_view head) {
  LogPlace base;
  std::string_view left = head;
  if (!DecodeSnapshotHead(&left, &base).ok() || !left.empty() || Refuses(base)) return nullptr;
  return std::make_unique<Receiver>(shared_from_this(), base, head);
}

// By what was known a moment ago; BeginInstall looks again.
bool MachineReplica::Refuses(LogPlace base) const {
  return base.position.value <= committed_.load(std::memory_order_acquire) || serving();
}

void MachineReplica::BeginInstall(LogPlace base, std::string bytes,
                                  absl::AnyInvocable<void(absl::Status)> done) {
  if (handed_over_ || !replica_->WantsSnapshot(base)) {
    return done(absl::FailedPreconditionError("the snapshot is not wanted any more"));
  }
  if (install_ || snapshots_->busy()) {
    return done(absl::UnavailableError("another snapshot is being written"));
  }
  install_.emplace(Install{base, std::move(bytes), LogPosition(), std::move(done)});
  if (replica_->log().Has(base)) {
    install_->record = places_.RecordOf(base.position, record_);
  } else {
    // Nothing that the log holds follows it: a record that says nothing stands behind all of it.
    bytes_.clear();
    EncodeLogWrite(
        {0, replication::TruncateLog{LogPosition(replica_->log().last().position.value + 1)}},
        &bytes_);
    ++record_.value;
    Record();
    install_->record = record_;
  }
  ContinueInstall();
}

void MachineReplica::ContinueInstall() {
  if (!install_ || snapshots_ == nullptr || snapshots_->busy() ||
      install_->record > writer_->durable())
    return;
  if (install_->record <= snapshot_record_) {
    return EndInstall(absl::FailedPreconditionError("a later snapshot is there"));
  }
  snapshots_->Write(
      install_->record, storage::PiecesOf(install_->bytes),
      [this](absl::StatusOr<LogPosition> keep_from) { EndInstall(std::move(keep_from)); });
}

void MachineReplica::EndInstall(absl::StatusOr<LogPosition> keep_from) {
  Install install = *std::exchange(install_, {});
  if (!keep_from.ok()) return install.done(keep_from.status());
  snapshot_record_ = install.record;
  snapshot_at_ = LogBytes();
  if (handed_over_ || !replica_->WantsSnapshot(install.base)) {
    return install.done(absl::FailedPreconditionError("the snapshot is not wanted any more"));
  }
  const bool follows = replica_->log().Has(install.base);
  const std::string_view state = std::string_view(install.bytes).substr(kSnapshotHeadBytes);
  if (!state_->Restore(state)) {
    const auto status = absl::FailedPreconditionError(
        "a peer's snapshot cannot be decoded: the primary is of another version of this program");
    Fail(status, /*disk=*/false);
    return install.done(status);
  }
  applied_ = install.base.position;
  if (follows) {
    places_.Forget(applied_);
  } else {
    places_ = EntryPlaces(applied_);
  }
  snapshot_bytes_ = install.bytes.size();
  ports_.snapshot(SnapshotTaken{.position = applied_, .bytes = snapshot_bytes_});
  replica_->OnSnapshotInstalled(install.base, SteadyMs());
  writer_->TruncateBefore(*keep_from);
  Pump();
  install.done(absl::OkStatus());
}

}  // namespace forebay::node
