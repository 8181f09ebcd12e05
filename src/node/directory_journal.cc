#include "node/directory_journal.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codec/archive.h"
#include "storage/log_blocking.h"

namespace forebay::node {
namespace {

std::string NameOf(const shard::State& state) {
  return absl::StrCat("shard-", state.shard().value);
}
std::string NameOf(const ledger::State& /*state*/) { return "ledger"; }

template <class State>
using EffectsOf =
    std::conditional_t<std::is_same_v<State, shard::State>, shard::Effects, ledger::Effects>;

absl::Status CannotRead(const std::string& what, LogPosition position) {
  return absl::DataLossError(absl::StrCat(what, " at position ", position.value,
                                          " is whole, and cannot be decoded: it was written by "
                                          "another version of this program"));
}

// Gives a machine what its files hold.
template <class Command, class State>
storage::LogSink SinkOf(State* state, std::string* snapshot) {
  storage::LogSink sink;
  sink.begin_snapshot = [snapshot](LogPosition, uint64_t bytes) {
    snapshot->clear();
    snapshot->reserve(bytes);
    return absl::OkStatus();
  };
  sink.chunk = [snapshot](std::string_view chunk) {
    snapshot->append(chunk);
    return absl::OkStatus();
  };
  sink.end_snapshot = [state, snapshot] {
    codec::Reader reader(*snapshot);
    const bool restored = state->Restore(reader) && reader.Done();
    std::string().swap(*snapshot);
    return restored ? absl::OkStatus() : CannotRead("the snapshot", LogPosition());
  };
  sink.record = [state](LogPosition position, std::string_view record) {
    Command command;
    if (!codec::Decode(record, &command)) return CannotRead("the record", position);
    // Nobody waits for answers, and what it freed is not named any more.
    EffectsOf<State> effects;
    state->Apply(command, 0, &effects);
    return absl::OkStatus();
  };
  return sink;
}

}  // namespace

DirectoryJournal::DirectoryJournal(io::Disk* disk, JournalOptions options)
    : disk_(disk), options_(std::move(options)) {
  if (!options_.encode) encoder_ = std::make_shared<io::Workers>(1, "snapshots");
}

DirectoryJournal::~DirectoryJournal() {
  if (encoder_ != nullptr) encoder_->Stop();
}

storage::LogPost DirectoryJournal::encode() {
  if (options_.encode) return options_.encode;
  return [encoder = encoder_](auto work) { encoder->Post(std::move(work)); };
}

std::string DirectoryJournal::PathOf(const std::string& name) const {
  return absl::StrCat(options_.directory, "/", name);
}

template <class Command, class State>
absl::StatusOr<LogPosition> DirectoryJournal::RecoverMachine(State* state) {
  const std::string name = NameOf(*state);
  storage::Blocking disk(disk_, options_.turn);
  if (absl::Status made = disk.MakeDirectory(PathOf(name)); !made.ok()) return made;
  std::string snapshot;
  auto recovered = storage::RecoverLog(disk, PathOf(name), name, SinkOf<Command>(state, &snapshot));
  if (!recovered.ok()) return recovered.status();
  const LogPosition next = recovered->next;
  recovered_.push_back({name, *std::move(recovered)});
  return LogPosition(next.value - 1);
}

template <class Command, class State>
absl::StatusOr<std::unique_ptr<Log<Command>>> DirectoryJournal::OpenMachine(const State& state,
                                                                            LogPosition applied,
                                                                            LogOwner owner) {
  const std::string name = NameOf(state);
  uint64_t file_number = 1, recovered_bytes = 0;
  for (const RecoveredMachine& machine : recovered_) {
    if (machine.name != name) continue;
    file_number = machine.log.file_number;
    recovered_bytes = machine.log.bytes - machine.log.snapshot_bytes;
  }
  storage::LogOptions log{.directory = PathOf(name),
                          .name = name,
                          .file_bytes = options_.log_file_bytes,
                          .pending_bytes_max = options_.log_pending_bytes_max,
                          .incarnation = options_.incarnation,
                          .nonce = options_.nonce};
  auto writer = std::make_unique<storage::LogWriter>(
      disk_, log, LogPosition(applied.value + 1), file_number, owner.post,
      storage::LogEvents{.on_durable = owner.committed,
                         .on_failed = [failed = options_.failed, name](absl::Status status) {
                           failed(name, status);
                         }});
  auto snapshots = std::make_unique<storage::SnapshotWriter>(disk_, log, owner.post, encode());
  auto marker = std::make_unique<storage::LogMarker>(disk_, log, owner.post);
  OnSnapshot on_snapshot;
  if (options_.snapshot) {
    on_snapshot = [snapshot = options_.snapshot, name](const auto& taken) {
      snapshot(name, taken);
    };
  }
  return std::make_unique<MachineLog<Command, State>>(
      state, std::move(writer), std::move(snapshots), std::move(marker),
      options_.snapshot_log_bytes, recovered_bytes, std::move(on_snapshot));
}

absl::StatusOr<LogPosition> DirectoryJournal::Recover(shard::State* state) {
  return RecoverMachine<shard::Command>(state);
}
absl::StatusOr<LogPosition> DirectoryJournal::Recover(ledger::State* state) {
  return RecoverMachine<ledger::Command>(state);
}
absl::StatusOr<std::unique_ptr<Log<shard::Command>>> DirectoryJournal::OpenLog(
    const shard::State& state, LogPosition applied, LogOwner owner) {
  return OpenMachine<shard::Command>(state, applied, std::move(owner));
}
absl::StatusOr<std::unique_ptr<Log<ledger::Command>>> DirectoryJournal::OpenLog(
    const ledger::State& state, LogPosition applied, LogOwner owner) {
  return OpenMachine<ledger::Command>(state, applied, std::move(owner));
}

}  // namespace forebay::node
