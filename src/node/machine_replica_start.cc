// What a replica does at its start: reads its log, and sees whose it is.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "node/machine_replica.h"
#include "node/read_replica.h"
#include "storage/replace_file.h"

namespace forebay::node {
namespace {

constexpr size_t kIdentityBytesMax = 4'096;

}  // namespace

absl::Status MachineReplica::Recover() {
  storage::Blocking disk(disk_);
  if (auto status = disk.MakeDirectory(options_.log.directory); !status.ok()) return status;
  auto recovery = std::make_unique<ReplicaRecovery>();
  auto log = ReadReplica(disk, options_.log.directory, name(), state_, recovery.get());
  bool lost = false;
  if (!log.ok()) {
    if (!absl::IsDataLoss(log.status())) return log.status();
    lost = true;
    if (auto status = MoveAside(log.status()); !status.ok()) return status;
    recovery = std::make_unique<ReplicaRecovery>();
    log = ReadReplica(disk, options_.log.directory, name(), state_, recovery.get());
    if (!log.ok()) return log.status();
  }
  notes_.insert(notes_.end(), log->notes.begin(), log->notes.end());
  places_ = recovery->places();
  replication::Recovered recovered = recovery->Take();
  empty_ = recovered.base.position == LogPosition() && recovered.entries.empty();
  if (auto status = Identify(log->tail_cut, lost); !status.ok()) return status;
  notes_.push_back(absl::StrCat(name(), ": a replica under incarnation ", self_.incarnation.value,
                                ", kept since ", self_.kept_since.value, ", snapshot at ",
                                recovered.base.position.value, " and ", recovered.entries.size(),
                                " entries, ", log->bytes, " bytes in ", log->seconds, " s"));
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
      return absl::FailedPreconditionError(absl::StrCat(path, " is of node ", identity.node,
                                                        ", this is node ", options_.node.value,
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
  snapshots_ = std::make_unique<storage::SnapshotWriter>(disk_, options_.log, post, ports_.encode);
}

}  // namespace forebay::node
