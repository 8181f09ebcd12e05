#include "node/read_replica.h"

#include <string_view>

#include "absl/strings/str_cat.h"

namespace forebay::node {
namespace {

absl::Status OtherVersion(const std::string& machine, const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " of ", machine,
                   " is whole, and cannot be decoded: it was written by another version of this "
                   "program"));
}

}  // namespace

absl::StatusOr<storage::RecoveredLog> ReadReplica(storage::Blocking disk,
                                                  const std::string& directory,
                                                  const std::string& machine,
                                                  ReplicatedState* state,
                                                  ReplicaRecovery* recovery) {
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
    replication::LogPlace base;
    if (auto status = DecodeSnapshotHead(&bytes, &base); !status.ok()) return status;
    const bool restored = state->Restore(bytes);
    std::string().swap(snapshot);
    if (!restored) return OtherVersion(machine, "the snapshot");
    recovery->Begin(base);
    return absl::OkStatus();
  };
  sink.record = [&](LogPosition position, std::string_view record) {
    return recovery->Add(position, record);
  };
  return storage::RecoverLog(disk, directory, machine, sink);
}

bool IsReplica(storage::Blocking disk, const std::string& directory) {
  return disk.Open(absl::StrCat(directory, "/", kReplicaFileName), io::OpenMode::kRead).ok();
}

absl::StatusOr<storage::RecoveredLog> ReadWholeReplica(storage::Blocking disk,
                                                       const std::string& directory,
                                                       const std::string& machine,
                                                       ReplicatedState* state) {
  ReplicaRecovery recovery;
  auto log = ReadReplica(disk, directory, machine, state, &recovery);
  if (!log.ok()) return log;
  LogPosition position = recovery.recovered().base.position;
  for (const replication::Entry& entry : recovery.recovered().entries) {
    ++position.value;
    if (!entry.command.empty() && !state->Apply(position, entry.command)) {
      return OtherVersion(machine, absl::StrCat("the entry at ", position.value));
    }
  }
  return log;
}

}  // namespace forebay::node
