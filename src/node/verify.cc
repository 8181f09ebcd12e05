#include "node/verify.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "io/read_only_disk.h"
#include "ledger/state.h"
#include "node/check_recovered.h"
#include "node/content_machine.h"
#include "node/directory_journal.h"
#include "node/read_replica.h"
#include "node/replicated_state.h"
#include "shard/state.h"
#include "storage/content_log.h"
#include "storage/log_blocking.h"
#include "storage/log_lock.h"
#include "storage/segment_store.h"

namespace forebay::node {
namespace {

// Payloads that are read at once.
constexpr size_t kReadsAtOnce = 16;

uint64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

class Verification {
 public:
  Verification(io::Disk* disk, const VerifyOptions& options, const RunIdentity& run)
      : disk_(disk), options_(options), report_{.run = run} {}

  absl::StatusOr<VerifyReport> Run() {
    LookAtMachines();
    // What they would name is not known; to look for less would call the rest dead.
    if (!report_.may_start) {
      report_.remarks.push_back("payloads and contents were not looked at");
      return std::move(report_);
    }
    FOREBAY_RETURN_IF_ERROR(LookAtContents());
    FOREBAY_RETURN_IF_ERROR(LookAtSegments());
    return std::move(report_);
  }

 private:
  void LookAtMachines();
  void LookAtMachine(const absl::Status& recovered);
  absl::Status LookAtContents();
  absl::Status LookAtReplicatedContents(const std::string& folder);
  absl::Status LookAtSegments();
  // Of a daemon that is alone by its journal, of a node of a cluster by the replica's files.
  absl::Status Recover(DirectoryJournal* journal, const std::string& machine, auto* state,
                       ReplicatedState* following);
  void ReadAll(storage::SegmentStore* store);

  io::ReadOnlyDisk disk_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::vector<PayloadId> payloads_, contents_;
};

absl::Status Verification::Recover(DirectoryJournal* journal, const std::string& machine,
                                   auto* state, ReplicatedState* following) {
  const std::string folder = absl::StrCat(options_.directory, "/", machine);
  if (!IsReplica(storage::Blocking(&disk_), folder)) return journal->Recover(state).status();
  auto log = ReadWholeReplica(storage::Blocking(&disk_), folder, machine, following);
  if (log.ok()) report_.machines.push_back({machine, *std::move(log)});
  return log.status();
}

void Verification::LookAtMachines() {
  DirectoryJournal journal(&disk_, {.directory = options_.directory});
  const auto count = static_cast<uint32_t>(report_.run.shards);
  const ledger::Options ledger_options{.run_seed = report_.run.run_seed, .shards = count};
  ledger::State ledger(ledger_options);
  FollowingLedger following_ledger(&ledger, ledger_options);
  LookAtMachine(Recover(&journal, "ledger", &ledger, &following_ledger));
  std::vector<std::unique_ptr<shard::State>> states;
  std::vector<const shard::State*> shards;
  for (uint32_t i = 0; i < count; ++i) {
    const shard::Options options{.shard = ShardId(static_cast<uint8_t>(i)),
                                 .run_seed = report_.run.run_seed};
    states.push_back(std::make_unique<shard::State>(options));
    shards.push_back(states.back().get());
    FollowingShard following(states.back().get(), options);
    LookAtMachine(Recover(&journal, absl::StrCat("shard-", i), states.back().get(), &following));
  }
  if (report_.may_start) LookAtMachine(CheckRecovered(ledger, shards));
  const auto payload = [this](PayloadId id) { payloads_.push_back(id); };
  // The ledger's own; those that its steps hold are the shards'.
  ledger.ForEachPayload(payload, [](PayloadId) {});
  for (const shard::State* shard : shards) {
    shard->ForEachPayload(payload, [this](PayloadId id) { contents_.push_back(id); });
  }
  report_.machines.insert(report_.machines.end(), journal.recovered().begin(),
                          journal.recovered().end());
  for (const RecoveredMachine& machine : report_.machines) {
    report_.remarks.insert(report_.remarks.end(), machine.log.notes.begin(),
                           machine.log.notes.end());
  }
}

void Verification::LookAtMachine(const absl::Status& recovered) {
  if (recovered.ok()) return;
  report_.damage.emplace_back(recovered.message());
  report_.may_start = false;
}

// All that were ever added are there, and those that are named among them.
absl::Status Verification::LookAtReplicatedContents(const std::string& folder) {
  storage::ContentStore store(UINT64_MAX);
  ContentMachine machine(&store);
  auto log =
      ReadWholeReplica(storage::Blocking(&disk_), folder, storage::kContentsMachine, &machine);
  if (!log.ok()) {
    LookAtMachine(log.status());
    return absl::OkStatus();
  }
  report_.contents = store.use().items;
  report_.content_bytes = store.use().bytes;
  for (const PayloadId id : contents_) {
    if (!store.Read(id).ok()) {
      report_.damage.push_back(absl::StrCat("task content ", absl::Hex(id.value), " is missing"));
    }
  }
  report_.remarks.insert(report_.remarks.end(), log->notes.begin(), log->notes.end());
  return absl::OkStatus();
}

absl::Status Verification::LookAtContents() {
  const std::string folder = absl::StrCat(options_.directory, "/", storage::kContentsMachine);
  if (IsReplica(storage::Blocking(&disk_), folder)) return LookAtReplicatedContents(folder);
  storage::ContentStore store(UINT64_MAX);
  auto recovered = storage::RecoverContents(storage::Blocking(&disk_), folder, contents_, &store);
  if (absl::IsDataLoss(recovered.status())) {
    report_.damage.emplace_back(recovered.status().message());
    report_.may_start = false;
    return absl::OkStatus();
  }
  if (!recovered.ok()) return recovered.status();
  report_.contents = recovered->live.size();
  report_.content_bytes = recovered->live_bytes;
  report_.remarks.insert(report_.remarks.end(), recovered->log.notes.begin(),
                         recovered->log.notes.end());
  return absl::OkStatus();
}

absl::Status Verification::LookAtSegments() {
  const std::string& folder =
      options_.segment_directory.empty() ? options_.directory : options_.segment_directory;
  std::erase(payloads_, PayloadId());
  std::sort(payloads_.begin(), payloads_.end());
  payloads_.erase(std::unique(payloads_.begin(), payloads_.end()), payloads_.end());
  storage::SegmentStore store(
      &disk_, {.directory = folder,
               .cluster = absl::StrCat(absl::Hex(report_.run.run, absl::kZeroPad16)),
               .incarnation = report_.run.incarnation,
               .bytes_max = options_.memory_bytes,
               .completion_reserve_bytes = 0,
               .want_bytes_max = 0,
               .now_ms = NowMs});
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<absl::StatusOr<storage::StoreRecovery>> found;
  store.Recover(payloads_, [&](absl::StatusOr<storage::StoreRecovery> answer) {
    std::lock_guard lock(mutex);
    found = std::move(answer);
    changed.notify_one();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&found] { return found.has_value(); });
  if (absl::IsDataLoss(found->status())) {
    report_.damage.emplace_back(found->status().message());
    report_.may_start = false;
    return absl::OkStatus();
  }
  if (!found->ok()) return found->status();
  const storage::StoreRecovery& recovery = **found;
  report_.segments = recovery.segments;
  if (recovery.dead_segments > 0) {
    report_.remarks.push_back(
        absl::StrCat(recovery.dead_segments, " segments hold nothing that is named"));
  }
  for (const storage::LostPayload& lost : recovery.lost) {
    report_.damage.push_back(absl::StrCat("payload ", absl::Hex(lost.id.value), ": ", lost.why));
    std::erase(payloads_, lost.id);
  }
  lock.unlock();
  ReadAll(&store);
  return absl::OkStatus();
}

// Reading holds the bytes against their crc; what is read is given up at once.
void Verification::ReadAll(storage::SegmentStore* store) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t reading = 0;
  for (const PayloadId id : payloads_) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&reading] { return reading < kReadsAtOnce; });
    ++reading;
    lock.unlock();
    store->Load({id}, storage::Parts::kAll,
                [&, id](absl::StatusOr<std::vector<storage::PayloadView>> views) {
                  std::lock_guard done(mutex);
                  if (views.ok()) {
                    ++report_.payloads;
                    report_.payload_bytes += views->front().bytes();
                  } else {
                    report_.damage.push_back(absl::StrCat("payload ", absl::Hex(id.value), ": ",
                                                          views.status().message()));
                  }
                  --reading;
                  changed.notify_one();
                });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&reading] { return reading == 0; });
}

}  // namespace

absl::StatusOr<VerifyReport> VerifyDirectory(io::Disk* disk, const VerifyOptions& options) {
  // First, for taking the lock makes its file.
  const auto run = ReadIdentity(disk, options.directory);
  if (!run.ok()) return run.status();
  // Nobody may change what is being looked at.
  auto lock = storage::DirectoryLock::Take(options.directory);
  if (!lock.ok() && io::ErrorOf(lock.status()) != EROFS) return lock.status();
  return Verification(disk, options, *run).Run();
}

}  // namespace forebay::node
