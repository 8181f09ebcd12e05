#include "node/machine_replica.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"
#include "codec/snapshot_parts.h"
#include "node/send_parts.h"
#include "storage/replace_file.h"

namespace forebay::node {
namespace {

using replication::LogPlace;

// Applied in one turn of the loop, so that what came meanwhile is looked at.
constexpr size_t kApplyAtOnce = 4'096;
constexpr size_t kIdentityBytesMax = 4'096;

// Every pause counts: who stood still must see that it did.
uint64_t SteadyMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

template <class F>
void MachineReplica::InLoop(F work) {
  serial_->Post([self = shared_from_this(), work = std::move(work)]() mutable {
    if (!self->closed_) work(*self);
  });
}

MachineReplica::MachineReplica(io::Disk* disk, MachineReplicaOptions options,
                               MachineReplicaPorts ports, ReplicatedState* state)
    : disk_(disk), options_(std::move(options)), ports_(std::move(ports)), state_(state) {}

absl::StatusOr<std::shared_ptr<MachineReplica>> MachineReplica::Open(io::Disk* disk,
                                                                     MachineReplicaOptions options,
                                                                     MachineReplicaPorts ports,
                                                                     ReplicatedState* state) {
  std::shared_ptr<MachineReplica> replica(
      new MachineReplica(disk, std::move(options), std::move(ports), state));
  if (absl::Status status = replica->Recover(); !status.ok()) return status;
  return replica;
}

void MachineReplica::Close() {
  serial_->Post([this] {
    closed_ = true;
    serving_ = false;
    snapshots_.reset();
    marker_.reset();
    writer_.reset();
    for (auto& [position, done] : std::exchange(waiting_, {})) {
      done(absl::UnavailableError("the daemon ends"));
    }
    for (auto& [command, done] : std::exchange(own_, {})) {
      done(absl::UnavailableError("the daemon ends"));
    }
    if (install_) std::exchange(install_, {})->done(absl::UnavailableError("the daemon ends"));
  });
  serial_->Flush();
}

// --- The start ---

absl::Status MachineReplica::Recover() {
  storage::Blocking disk(disk_);
  if (auto status = disk.MakeDirectory(options_.log.directory); !status.ok()) return status;
  auto recovery = std::make_unique<ReplicaRecovery>();
  auto log = ReadLog(recovery.get());
  bool lost = false;
  if (!log.ok()) {
    if (!absl::IsDataLoss(log.status())) return log.status();
    lost = true;
    if (auto status = MoveAside(log.status()); !status.ok()) return status;
    recovery = std::make_unique<ReplicaRecovery>();
    log = ReadLog(recovery.get());
    if (!log.ok()) return log.status();
  }
  notes_.insert(notes_.end(), log->notes.begin(), log->notes.end());
  places_ = recovery->places();
  replication::Recovered recovered = recovery->Take();
  empty_ = recovered.base.position == LogPosition() && recovered.entries.empty();
  if (auto status = Identify(log->tail_cut, lost); !status.ok()) return status;
  notes_.push_back(absl::StrCat(
      name(), ": a replica under incarnation ", self_.incarnation.value, ", kept since ",
      self_.kept_since.value, ", snapshot at ", recovered.base.position.value, " and ",
      recovered.entries.size(), " entries, ", log->bytes, " bytes in ", log->seconds, " s"));
  applied_ = recovered.base.position;
  committed_ = applied_.value;
  recovered_bytes_ = log->bytes - log->snapshot_bytes;
  snapshot_record_ = log->snapshot;
  snapshot_bytes_ = log->snapshot_bytes;
  record_ = LogPosition(log->next.value - 1);
  replica_.emplace(options_.replication, replication::Mutations{}, self_, std::move(recovered),
                   SteadyMs());
  OpenFiles(*log);
  return absl::OkStatus();
}

absl::StatusOr<storage::RecoveredLog> MachineReplica::ReadLog(ReplicaRecovery* recovery) {
  std::string snapshot;
  storage::LogSink sink;
  sink.begin_snapshot = [&](LogPosition, uint64_t bytes) {
    snapshot.clear();
    snapshot.reserve(bytes);
    return absl::OkStatus();
  };
  sink.chunk = [&](std::string_view chunk) {
    snapshot.append(chunk);
    return absl::OkStatus();
  };
  sink.end_snapshot = [&]() -> absl::Status {
    std::string_view bytes = snapshot;
    LogPlace base;
    if (auto status = DecodeSnapshotHead(&bytes, &base); !status.ok()) return status;
    const bool restored = state_->Restore(bytes);
    std::string().swap(snapshot);
    if (!restored) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the snapshot of ", name(),
          " is whole, and cannot be decoded: it was written by another version of this program"));
    }
    recovery->Begin(base);
    return absl::OkStatus();
  };
  sink.record = [&](LogPosition position, std::string_view record) {
    return recovery->Add(position, record);
  };
  return storage::RecoverLog(storage::Blocking(disk_), options_.log.directory, name(), sink);
}

// What is damaged is for people to look at; the replica gets everything from its peers.
absl::Status MachineReplica::MoveAside(const absl::Status& why) {
  storage::Blocking disk(disk_);
  const std::string aside = absl::StrCat(options_.log.directory, ".damaged-", options_.log.nonce);
  notes_.push_back(absl::StrCat(name(), ": the log is damaged and was moved to ", aside,
                                "; the replica begins empty: ", why.message()));
  // Its identity goes with it: whatever it held, it does not any more.
  if (auto status = disk.Rename(options_.log.directory, aside); !status.ok()) return status;
  return disk.MakeDirectory(options_.log.directory);
}

absl::Status MachineReplica::Identify(bool cut, bool lost) {
  storage::Blocking disk(disk_);
  const std::string path = absl::StrCat(options_.log.directory, "/", kReplicaFileName);
  ReplicaIdentity identity;
  bool fresh = lost || empty_;
  auto text = storage::ReadFile(&disk, path, kIdentityBytesMax);
  if (text.ok()) {
    if (auto status = DecodeReplicaIdentity(*text, &identity); !status.ok()) {
      return absl::DataLossError(absl::StrCat(path, ": ", status.message()));
    }
    if (identity.node != options_.node.value) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is of node ", identity.node, ", this is node ", options_.node.value,
                       " (cluster.node)"));
    }
    fresh = lost;
  } else if (io::ErrorOf(text.status()) != ENOENT) {
    return text.status();
  } else if (!fresh) {
    return absl::DataLossError(absl::StrCat(path, " is missing beside a log that is not empty"));
  }
  if (fresh || cut || identity.incarnation < options_.known.value) {
    const bool forgotten = identity.incarnation < options_.known.value;
    identity.node = options_.node.value;
    identity.incarnation = std::max(identity.incarnation, options_.known.value) + 1;
    if (fresh || forgotten) identity.kept_since = identity.incarnation;
    if (auto status = storage::ReplaceFile(&disk, options_.log.directory, kReplicaFileName,
                                           EncodeReplicaIdentity(identity));
        !status.ok()) {
      return status;
    }
  }
  self_ = {options_.node, cluster::Incarnation(identity.incarnation),
           cluster::Incarnation(identity.kept_since)};
  return absl::OkStatus();
}

void MachineReplica::OpenFiles(const storage::RecoveredLog& log) {
  const auto post = [serial = serial_](auto work) { serial->Post(std::move(work)); };
  // The writer goes within the loop, before the replica does.
  writer_ = std::make_unique<storage::LogWriter>(
      disk_, options_.log, log.next, log.file_number, post,
      storage::LogEvents{
          .on_durable = [this] { OnDurable(); },
          .on_failed = [this](const absl::Status& status) { Fail(status, /*disk=*/true); }});
  marker_ = std::make_unique<storage::LogMarker>(disk_, options_.log, post);
  snapshots_ =
      std::make_unique<storage::SnapshotWriter>(disk_, options_.log, post, ports_.encode);
}

// --- Events ---

void MachineReplica::OnConfiguration(cluster::ConfigurationRevision revision,
                                     cluster::Configuration value) {
  InLoop([revision, value = std::move(value)](MachineReplica& self) {
    self.replica_->OnConfiguration(revision, value, SteadyMs());
    self.Pump();
  });
}

void MachineReplica::OnMessage(std::string_view bytes) {
  auto message = replication::DecodeMessage(bytes);
  if (!message.ok()) return;  // its checksum was right: from another version, and not for this one
  InLoop([message = *std::move(message)](MachineReplica& self) {
    self.replica_->OnMessage(message, SteadyMs());
    self.Pump();
  });
}

void MachineReplica::Tick() {
  if (tick_posted_.exchange(true)) return;
  InLoop([](MachineReplica& self) {
    self.tick_posted_ = false;
    self.replica_->OnTick(SteadyMs());
    self.Pump();
  });
}

void MachineReplica::HandOver(cluster::NodeId to, absl::AnyInvocable<void(absl::Status)> done) {
  InLoop([to, done = std::move(done)](MachineReplica& self) mutable {
    absl::Status status = self.replica_->HandOver(to, SteadyMs());
    self.Pump();
    done(std::move(status));
  });
}

void MachineReplica::Look(absl::AnyInvocable<void(const ReplicaView&)> done) {
  InLoop([done = std::move(done)](MachineReplica& self) mutable {
    const replication::Replica& replica = *self.replica_;
    done({.role = replica.role(),
          .serving = replica.serving(),
          .failed = replica.failed() || !self.writer_->status().ok(),
          .epoch = replica.epoch(),
          .leader = replica.leader(),
          .incarnation = self.self_.incarnation,
          .last = replica.log().last().position,
          .synced = replica.synced(),
          .committed = replica.committed(),
          .applied = self.applied_,
          .revision = replica.revision(),
          .configuration = replica.configuration()});
  });
}

// --- The loop ---

void MachineReplica::Pump() {
  do {
    Do(replica_->Take());
    SubmitProposed();
  } while (ApplyCommitted());
  Tell();
  if (SnapshotIsDue()) TakeSnapshot();
}

void MachineReplica::Do(replication::Output output) {
  for (const replication::LogWrite& write : output.log) Write(write);
  for (const replication::RoleChange& change : output.roles) {
    if (ports_.role_changed) ports_.role_changed(change);
    if (change.role == replication::Role::kBackup && leads_) ports_.deposed();
  }
  for (const auto& [to, message] : output.messages) {
    ports_.peers->Send(to, name(), replication::EncodeMessage(message));
  }
  for (const cluster::NodeId to : output.snapshots) {
    if (leader_.send_snapshot) {
      leader_.owner.post([send = leader_.send_snapshot, to] { send(to); });
    } else if (!handed_over_) {
      SendOwnSnapshot(to);
    }
  }
  for (const replication::Swap& swap : output.swaps) {
    ports_.swap(swap, [self = shared_from_this()](const replication::SwapAnswer& answer) {
      self->InLoop([answer](MachineReplica& me) {
        me.replica_->OnSwapAnswer(answer, SteadyMs());
        me.Pump();
      });
    });
  }
  if (output.failure) Fail(absl::InternalError(*output.failure), /*disk=*/false);
}

void MachineReplica::Write(const replication::LogWrite& write) {
  bytes_.clear();
  EncodeLogWrite(write, &bytes_);
  ++record_.value;
  LogPosition entry;
  if (const auto* append = std::get_if<replication::AppendEntry>(&write.what)) {
    entry = append->position;
    places_.Append(entry, record_);
  } else if (const auto* truncate = std::get_if<replication::TruncateLog>(&write.what)) {
    entry = LogPosition(truncate->from.value - 1);
    places_.TruncateFrom(truncate->from);
  } else {
    entry = places_.last_entry();  // what the log holds after the snapshot stays where it is
  }
  Record();
  unsynced_.push_back({record_, write.generation, entry});
}

void MachineReplica::Record() { writer_->Append(record_, bytes_); }

void MachineReplica::OnDurable() {
  if (closed_) return;
  const LogPosition durable = writer_->durable();
  std::optional<Unsynced> last;
  while (!unsynced_.empty() && unsynced_.front().record <= durable) {
    last = unsynced_.front();
    unsynced_.pop_front();
  }
  if (last) replica_->OnSynced(last->generation, last->entry, SteadyMs());
  ContinueInstall();
  Pump();
}

bool MachineReplica::ApplyCommitted() {
  const LogPosition committed = replica_->committed();
  if (handed_over_ || replica_->failed() || applied_ >= committed) return false;
  size_t applied = 0;
  while (applied_ < committed && applied < kApplyAtOnce) {
    ++applied_.value;
    ++applied;
    const std::string& command = replica_->log().At(applied_).command;
    if (!command.empty() && !state_->Apply(applied_, command)) {
      Fail(absl::FailedPreconditionError(absl::StrCat(
               "the command at position ", applied_.value,
               " cannot be decoded: the primary is of another version of this program")),
           /*disk=*/false);
      return false;
    }
    if (!waiting_.empty() && waiting_.front().first == applied_) {
      auto done = std::move(waiting_.front().second);
      waiting_.pop_front();
      done(absl::OkStatus());
    }
  }
  replica_->OnApplied(applied_, std::nullopt);
  if (applied_ >= committed || std::exchange(apply_posted_, true)) return false;
  InLoop([](MachineReplica& self) {
    self.apply_posted_ = false;
    self.Pump();
  });
  return false;
}

// Atomics, and whom it concerns.
void MachineReplica::Tell() {
  serving_.store(replica_->serving() && !replica_->failed(), std::memory_order_release);
  const auto& log = replica_->log();
  const LogPosition committed = replica_->committed();
  const LogPosition from = std::max(committed, log.base().position);
  pending_bytes_.store(proposed_bytes_ + log.BytesBetween(from, log.last().position),
                       std::memory_order_relaxed);
  if (committed.value == committed_.load(std::memory_order_relaxed)) return;
  committed_.store(committed.value, std::memory_order_release);
  if (leader_.owner.post) leader_.owner.post([told = leader_.owner.committed] { told(); });
}

void MachineReplica::Fail(const absl::Status& status, bool disk) {
  serving_ = false;
  ports_.failed(status, disk);
}

// --- Leading ---

absl::StatusOr<LogPosition> MachineReplica::TakeState() {
  Notification over;
  absl::StatusOr<LogPosition> at = absl::UnavailableError("the daemon ends");
  serial_->Post([&] {
    const bool all = !closed_ && applied_ == replica_->log().last().position;
    if (!all || !replica_->serving() || replica_->failed()) {
      at = absl::UnavailableError(absl::StrCat(name(), " does not serve any more"));
    } else {
      at = applied_;
      snapshots_.reset();  // what it writes is of a state that goes on elsewhere
      handed_over_ = leads_ = true;
    }
    over.Notify();
  });
  over.Wait();
  return at;
}

void MachineReplica::SetLeader(Leader leader) {
  InLoop([leader = std::move(leader)](MachineReplica& self) mutable {
    self.leader_ = std::move(leader);
  });
}

void MachineReplica::Lead() {
  InLoop([](MachineReplica& self) {
    self.leads_ = true;
    if (self.replica_->role() != replication::Role::kPrimary) self.ports_.deposed();
  });
}

void MachineReplica::Propose(std::vector<std::string> commands) {
  InLoop([commands = std::move(commands)](MachineReplica& self) mutable {
    for (std::string& command : commands) {
      self.proposed_bytes_ += command.size();
      self.proposed_.push_back(std::move(command));
    }
    self.Pump();
  });
}

void MachineReplica::ProposeOwn(std::string command, OnApplied done) {
  InLoop([command = std::move(command), done = std::move(done)](MachineReplica& self) mutable {
    self.proposed_bytes_ += command.size();
    self.own_.emplace_back(std::move(command), std::move(done));
    self.Pump();
  });
}

// What is refused now (a switchover that does not come to pass, too much that waits) is taken later.
void MachineReplica::SubmitProposed() {
  const uint64_t now = SteadyMs();
  bool any = false;
  while (!proposed_.empty() && replica_->MayPropose(proposed_.front().size()).ok()) {
    proposed_bytes_ -= proposed_.front().size();
    FOREBAY_CHECK(replica_->Propose(std::move(proposed_.front()), now).ok());
    proposed_.pop_front();
    any = true;
  }
  while (!own_.empty() && replica_->MayPropose(own_.front().first.size()).ok()) {
    auto& [command, done] = own_.front();
    proposed_bytes_ -= command.size();
    const auto at = replica_->Propose(std::move(command), now);
    FOREBAY_CHECK(at.ok());
    waiting_.emplace_back(*at, std::move(done));
    own_.pop_front();
    any = true;
  }
  if (any) Do(replica_->Take());
}

void MachineReplica::Applied(LogPosition position) {
  InLoop([position](MachineReplica& self) {
    if (position <= self.applied_) return;
    self.applied_ = position;
    self.replica_->OnApplied(position, std::nullopt);
    if (!self.SnapshotIsDue()) return;
    self.snapshot_at_ = self.LogBytes();
    self.snapshot_wanted_ = true;
  });
}

// --- Snapshots ---

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
  if (applied_ == LogPosition()) return;
  const LogPlace base{replica_->log().EpochAt(applied_), applied_};
  auto parts = std::make_shared<codec::Parts>();
  state_->Snapshot(parts->writer());
  SendParts(ports_.peers, to, name(), EncodeSnapshotHead(base), std::move(parts),
            [serial = serial_](auto work) { serial->Post(std::move(work)); });
}

// --- A peer's snapshot ---

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
    EncodeLogWrite({0, replication::TruncateLog{
                           LogPosition(replica_->log().last().position.value + 1)}},
                   &bytes_);
    ++record_.value;
    Record();
    install_->record = record_;
  }
  ContinueInstall();
}

void MachineReplica::ContinueInstall() {
  if (!install_ || snapshots_ == nullptr || snapshots_->busy() || install_->record > writer_->durable()) return;
  if (install_->record <= snapshot_record_) {
    return EndInstall(absl::FailedPreconditionError("a later snapshot is there"));
  }
  snapshots_->Write(install_->record, storage::PiecesOf(install_->bytes),
                    [this](absl::StatusOr<LogPosition> keep_from) {
                      EndInstall(std::move(keep_from));
                    });
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
  replica_->OnSnapshotInstalled(install.base, SteadyMs());
  writer_->TruncateBefore(*keep_from);
  Pump();
  install.done(absl::OkStatus());
}

void MachineReplica::LookAtLog(absl::AnyInvocable<void()> done) {
  InLoop([done = std::move(done)](MachineReplica& self) mutable {
    self.writer_->LookForFile();
    self.marker_->Mark(self.writer_->durable(), std::move(done));
  });
}

}  // namespace forebay::node
