#include "node/machine_replica.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sync.h"

namespace forebay::node {
namespace {

// Applied in one turn of the loop, so that what came meanwhile is looked at.
constexpr size_t kApplyAtOnce = 4'096;

}  // namespace

uint64_t MachineReplica::SteadyMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
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

void MachineReplica::SetPaused(bool paused) {
  InLoop([paused](MachineReplica& self) { self.replica_->SetPaused(paused); });
}

void MachineReplica::HandOver(cluster::NodeId to, absl::AnyInvocable<void(absl::Status)> done) {
  InLoop([to, done = std::move(done)](MachineReplica& self) mutable {
    absl::Status status = self.replica_->HandOver(to, SteadyMs());
    self.Pump();
    done(std::move(status));
  });
}

void MachineReplica::Leave() {
  InLoop([](MachineReplica& self) {
    self.replica_->Leave();
    self.Pump();
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
    if (change.role == replication::Role::kBackup) EndReign();
  }
  for (const auto& [to, message] : output.messages) {
    ports_.peers->Send(to, name(), replication::EncodeMessage(message));
  }
  for (const cluster::NodeId to : output.snapshots) {
    if (leader_.send_snapshot) {
      leader_.owner.post([send = leader_.send_snapshot, to] { send(to); });
    } else if (!handed_over_) {
      SendOwnSnapshot(to);
    } else {
      replica_->OnSnapshotEnded(to);  // the state is on its way to who leads
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

// What this node proposed may be replaced by what another did, at the same positions: none of it is
// committed, applied or answered from here on, whatever the position says that is committed.
void MachineReplica::EndReign() {
  proposed_.clear();
  proposed_bytes_ = 0;
  auto waiting = std::exchange(waiting_, {});
  auto own = std::exchange(own_, {});
  for (auto& [position, done] : waiting) done(absl::UnavailableError("another node leads"));
  for (auto& [command, done] : own) done(absl::UnavailableError("another node leads"));
  if (!leads_) return;
  over_ = true;
  ports_.deposed();
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
  serving_.store(replica_->serving() && !replica_->failed() && !over_, std::memory_order_release);
  const auto& log = replica_->log();
  const LogPosition committed = replica_->committed();
  const LogPosition from = std::max(committed, log.base().position);
  pending_bytes_.store(proposed_bytes_ + log.BytesBetween(from, log.last().position),
                       std::memory_order_relaxed);
  if (over_ || committed.value == committed_.load(std::memory_order_relaxed)) return;
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
    if (self.replica_->role() != replication::Role::kPrimary) self.EndReign();
  });
}

void MachineReplica::Propose(std::vector<std::string> commands) {
  InLoop([commands = std::move(commands)](MachineReplica& self) mutable {
    if (self.over_) return;
    for (std::string& command : commands) {
      self.proposed_bytes_ += command.size();
      self.proposed_.push_back(std::move(command));
    }
    self.Pump();
  });
}

void MachineReplica::ProposeOwn(std::string command, OnApplied done) {
  InLoop([command = std::move(command), done = std::move(done)](MachineReplica& self) mutable {
    if (self.over_) return done(absl::UnavailableError("another node leads"));
    self.proposed_bytes_ += command.size();
    self.own_.emplace_back(std::move(command), std::move(done));
    self.Pump();
  });
}

// What is refused now (a switchover that does not come to pass, too much that waits) is taken
// later.
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

void MachineReplica::LookAtLog(absl::AnyInvocable<void()> done) {
  InLoop([done = std::move(done)](MachineReplica& self) mutable {
    self.writer_->LookForFile();
    self.marker_->Mark(self.writer_->durable(), std::move(done));
  });
}

}  // namespace forebay::node
