#include "server/run_storage.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/sync.h"
#include "base/units.h"
#include "node/kept_bytes.h"
#include "server/cluster_run.h"
#include "server/log.h"
#include "storage/log_blocking.h"
#include "storage/ram_payload_store.h"

namespace forebay::server {
namespace {

constexpr uint32_t kLogWorkers = 4;
constexpr uint32_t kSegmentWorkers = 16;
constexpr size_t kLostNotesMax = 10;
// How often it is seen whether the files are still there.
constexpr uint64_t kLookMs = 1'000;
constexpr uint64_t kTroubleLookMs = 200;
constexpr auto kDiskLook = absl::Milliseconds(20);
// How often the log says that a start waits for the store.
constexpr auto kSlowStart = absl::Seconds(10);

std::unique_ptr<io::Disk> NewDisk(const node::Config& config, const char* what, uint32_t workers,
                                  std::vector<std::string>* notes) {
  std::string why;
  auto disk =
      io::NewDisk({.workers_max = workers, .allow_uring = config.storage_io == "auto"}, &why);
  notes->push_back(absl::StrCat(what, " by ", std::string(disk->name()), ": ", why));
  return disk;
}

// While it lives, the log says now and then that a start waits for the store of rollouts: a hung
// file server does not answer, and nothing else would tell.
class StartWatch {
 public:
  StartWatch(const io::Disk* disk, std::string folder)
      : thread_([this, disk, folder = std::move(folder)] {
          while (!over_.WaitFor(kSlowStart)) {
            Log(LogLevel::kWarning, "the start waits for the store of rollouts",
                {{"folder", folder}, {"oldest_operation_ms", disk->use().oldest_ms}});
          }
        }) {}
  ~StartWatch() {
    over_.Notify();
    thread_.join();
  }

 private:
  Notification over_;
  std::thread thread_;
};

}  // namespace

uint64_t TaskContentHash(std::string_view payload, std::string_view attributes) {
  return HashCombine(Hash64(payload), Hash64(attributes, 1));
}

RunStorage::RunStorage(const node::Config& config, uint64_t run, ClusterRun* cluster)
    : run_(run),
      cluster_(cluster),
      task_bytes_max_(config.memory_task_bytes_max),
      retention_bytes_max_(config.retention_bytes_max()),
      keep_(config.keep()),
      segment_bytes_(config.storage_segment_bytes),
      directory_(config.storage_directory),
      // What the leader took every node takes; the limit is the leader's.
      contents_(cluster == nullptr ? config.memory_task_bytes_max : UINT64_MAX) {}

absl::StatusOr<std::unique_ptr<RunStorage>> RunStorage::Open(const node::Config& config,
                                                             uint64_t new_run, Failed failed,
                                                             ClusterRun* cluster) {
  std::unique_ptr<RunStorage> storage(new RunStorage(config, new_run, cluster));
  if (config.storage_directory.empty()) {
    storage->payloads_ = std::make_unique<storage::RamPayloadStore>(storage::RamPayloadStoreOptions{
        .bytes_max = config.memory_payload_bytes_max,
        .completion_reserve_bytes = config.completion_reserve_bytes()});
    return storage;
  }
  FOREBAY_RETURN_IF_ERROR(storage->OpenDirectory(config, failed));
  return storage;
}

absl::Status RunStorage::OpenDirectory(const node::Config& config, const Failed& failed) {
  log_disk_ = NewDisk(config, "logs", kLogWorkers, &notes_);
  segment_disk_ = NewDisk(config, "segments", kSegmentWorkers, &notes_);
  auto data = node::DataDirectory::Open(
      log_disk_.get(), directory_,
      {.run = run_, .run_seed = config.run_seed, .shards = config.shards});
  if (!data.ok()) return data.status();
  data_.emplace(*std::move(data));
  run_ = data_->identity().run;
  const uint64_t starts = data_->identity().incarnation;
  // Where a run was expected, a new one says that the path is wrong or a disk is not mounted.
  notes_.push_back(starts == 1
                       ? absl::StrCat("a new run begins in ", directory_)
                       : absl::StrCat("the run in ", directory_, " goes on: start ", starts));
  const node::JournalOptions options{
      .directory = directory_,
      .incarnation = data_->identity().incarnation,
      .nonce = node::Engine::NowMs() | 1,
      .log_pending_bytes_max = config.storage_log_pending_bytes_max,
      .snapshot_log_bytes = config.storage_snapshot_log_bytes,
      .failed = failed,
      .snapshot = [this](std::string_view machine, const auto& taken) {
        OnSnapshot(machine, taken);
      }};
  if (cluster_ == nullptr) {
    journal_ = std::make_unique<node::DirectoryJournal>(log_disk_.get(), options);
  }
  nonce_ = options.nonce;
  failed_ = failed;
  content_options_ = {.directory = absl::StrCat(directory_, "/", storage::kContentsMachine),
                      .pending_bytes_max = config.storage_log_pending_bytes_max,
                      .incarnation = options.incarnation,
                      .nonce = options.nonce};
  const std::string& segments = config.storage_segment_directory;
  const std::string& folder = segments.empty() ? directory_ : segments;
  {
    const StartWatch watch(segment_disk_.get(), folder);
    FOREBAY_RETURN_IF_ERROR(storage::Blocking(segment_disk_.get()).MakeDirectory(folder));
    FOREBAY_RETURN_IF_ERROR(node::CheckOwner(segment_disk_.get(), absl::StrCat(folder, "/segments"),
                                             data_->identity()));
  }
  auto store = std::make_unique<storage::SegmentStore>(
      segment_disk_.get(),
      storage::SegmentStoreOptions{.directory = folder,
                                   .cluster = absl::StrCat(absl::Hex(run_, absl::kZeroPad16)),
                                   .incarnation = data_->identity().incarnation,
                                   .seed = options.nonce,
                                   .bytes_max = config.memory_payload_bytes_max,
                                   .completion_reserve_bytes = config.completion_reserve_bytes(),
                                   .want_bytes_max = config.memory_payload_bytes_max / 4,
                                   .segment_bytes = config.storage_segment_bytes,
                                   .reserve_bytes = config.storage_reserve_bytes,
                                   .gc_grace_ms = config.storage_gc_grace_ms,
                                   .write_deadline_ms = config.storage_write_deadline_ms,
                                   .now_ms = node::Engine::NowMs,
                                   .after = [this](uint64_t delay_ms, std::function<void()> work) {
                                     timer_.After(delay_ms, std::move(work));
                                   }});
  timer_.Start();
  segments_ = store.get();
  payloads_ = std::move(store);
  return absl::OkStatus();
}

node::Journal* RunStorage::journal() {
  return cluster_ != nullptr ? cluster_->journal() : journal_.get();
}

absl::Status RunStorage::Follow(node::Engine* engine,
                                std::function<void(const node::AbsentMachines&)> lead,
                                std::function<void(const std::string&)> deposed) {
  return cluster_->Follow({.disk = log_disk_.get(),
                           .directory = directory_,
                           .incarnation = data_->identity().incarnation,
                           .nonce = nonce_},
                          engine, &contents_,
                          {.lead = std::move(lead),
                           .deposed = std::move(deposed),
                           .failed = failed_,
                           .snapshot = [this](std::string_view machine, const auto& taken) {
                             OnSnapshot(machine, taken);
                           }});
}

absl::StatusOr<storage::RecoveredContents> RunStorage::RecoverContents(
    const std::vector<PayloadId>& named) {
  const std::string& folder = content_options_.directory;
  storage::Blocking disk(log_disk_.get());
  FOREBAY_RETURN_IF_ERROR(disk.MakeDirectory(folder));
  return storage::RecoverContents(disk, folder, named, &contents_);
}

void RunStorage::OpenContents(storage::RecoveredContents recovered, bool compact) {
  notes_.push_back(absl::StrCat("contents: ", recovered.live.size(), " tasks of ",
                                recovered.live_bytes, " bytes, ", recovered.dead_bytes,
                                " bytes are dead, ", recovered.log.bytes, " bytes in ",
                                recovered.log.seconds, " s"));
  notes_.insert(notes_.end(), recovered.log.notes.begin(), recovered.log.notes.end());
  content_log_ = std::make_unique<storage::ContentLog>(
      log_disk_.get(), content_options_, recovered.log, &contents_,
      [serial = contents_serial_](auto work) { serial->Post(std::move(work)); }, journal_->encode(),
      [failed = failed_](absl::Status status) { failed(storage::kContentsMachine, status); });
  if (!recovered.half_dead() || !compact) return;
  notes_.push_back("contents: more than half is dead, so they are written anew");
  contents_serial_->Post([this, live = std::move(recovered.live)]() mutable {
    content_log_->Compact(std::move(live));
  });
}

void RunStorage::OnSnapshot(std::string_view machine,
                            const absl::StatusOr<node::SnapshotTaken>& taken) {
  if (!taken.ok()) {
    Log(LogLevel::kWarning,
        "a snapshot failed; the log goes on, and the next one comes in its time",
        {{"machine", std::string(machine)}, {"why", std::string(taken.status().message())}});
  } else {
    Log(LogLevel::kInfo, "snapshot",
        {{"machine", std::string(machine)},
         {"position", taken->position.value},
         {"bytes", taken->bytes},
         {"pause_ms", taken->pause_seconds * 1e3},
         {"seconds", taken->seconds},
         {"copied_bytes", taken->copied_bytes}});
  }
  MutexLock lock(&snapshots_mutex_);
  SnapshotUse& use = snapshots_[std::string(machine)];
  if (!taken.ok()) {
    ++use.failed;
    return;
  }
  ++use.taken;
  use.pause_seconds_sum += taken->pause_seconds;
  use.pause_seconds_max = std::max(use.pause_seconds_max, taken->pause_seconds);
  use.last = *taken;
}

RunStorage::~RunStorage() {
  // Within its loop, where its disk's answers run.
  contents_serial_->Post([this] { content_log_.reset(); });
  contents_serial_->Flush();
}

void RunStorage::AddContents(std::vector<std::string> items, WhenFull when_full, Added done) {
  if (cluster_ != nullptr) {
    uint64_t bytes = 0;
    for (const std::string& item : items) bytes += item.size();
    if (bytes + 4 * items.size() > replication::kCommandBytesMax / 2) {
      return done(absl::InvalidArgumentError(
          absl::StrCat("tasks of ", bytes, " bytes in one call, at most ",
                       replication::kCommandBytesMax / 2, " in a cluster")));
    }
    const uint64_t taken = contents_.use().arena_bytes;
    if (bytes > task_bytes_max_ - std::min(task_bytes_max_, taken)) {
      return done(absl::ResourceExhaustedError(absl::StrCat(
          "task contents of ", bytes, " bytes do not fit: ", taken,
          " bytes of arenas are taken, at most ", task_bytes_max_, " (memory.task_bytes_max)")));
    }
    return cluster_->AddContents(items, std::move(done));
  }
  if (content_log_ == nullptr) {
    const std::vector<std::string_view> views(items.begin(), items.end());
    std::vector<PayloadId> ids(items.size());
    if (auto status = contents_.Add(views, absl::MakeSpan(ids)); !status.ok()) {
      return done(std::move(status));
    }
    return done(std::move(ids));
  }
  contents_serial_->Post(
      [this, when_full, items = std::move(items), done = std::move(done)]() mutable {
        if (content_log_->full() && when_full == WhenFull::kRefuse) {
          return done(absl::UnavailableError(absl::StrCat(
              "the disk does not keep up: ", BytesText(content_log_->pending_bytes()),
              " of tasks wait to be synced, at most ",
              BytesText(content_options_.pending_bytes_max), " (storage.log_pending_bytes_max)")));
        }
        contents_held_.emplace_back(std::move(items), std::move(done));
        LetContentsIn();
      });
}

void RunStorage::LetContentsIn() {
  while (!contents_held_.empty() && !content_log_->full()) {
    auto [items, done] = std::move(contents_held_.front());
    contents_held_.pop_front();
    const std::vector<std::string_view> views(items.begin(), items.end());
    content_log_->Add(
        views, [this, done = std::move(done)](absl::StatusOr<std::vector<PayloadId>> ids) mutable {
          done(std::move(ids));
          contents_serial_->Post([this] { LetContentsIn(); });
        });
  }
}

FileSites RunStorage::sites() const {
  FileSites sites{.log_disk = log_disk_.get(),
                  .directory = directory_,
                  .machines = {"ledger"},
                  .segment_disk = segment_disk_.get(),
                  .segment_directory = segments_->folder()};
  for (uint64_t i = 0; i < data_->identity().shards; ++i) {
    sites.machines.push_back(absl::StrCat("shard-", i));
  }
  sites.machines.emplace_back(storage::kContentsMachine);
  return sites;
}

void RunStorage::AskContentsQueue(absl::AnyInvocable<void(node::LogQueue)> done) {
  contents_serial_->Post([this, done = std::move(done)]() mutable {
    if (content_log_ == nullptr) return done({});
    done({.bytes = content_log_->pending_bytes(), .bytes_max = content_options_.pending_bytes_max});
  });
}

bool RunStorage::Seal(absl::Duration most) {
  if (segments_ == nullptr) return true;
  auto done = std::make_shared<Notification>();
  segments_->Seal([done] { done->Notify(); });
  return done->WaitFor(most);
}

uint64_t RunStorage::AwaitDisk(absl::Duration most) const {
  if (segment_disk_ == nullptr) return 0;
  const absl::Time until = absl::Now() + most;
  while (segment_disk_->use().in_flight > 0 && absl::Now() < until) {
    absl::SleepFor(kDiskLook);
  }
  return segment_disk_->use().in_flight;
}

void RunStorage::Tick() {
  if (segments_ == nullptr) return;
  segments_->Tick();
  const uint64_t now = node::Engine::NowMs();
  if (now >= trouble_due_ms_) {
    trouble_due_ms_ = now + kTroubleLookMs;
    LookAtTrouble();
  }
  if (now < look_due_ms_) return;
  look_due_ms_ = now + kLookMs;
  BoundKept();
  LookForFiles();
}

void RunStorage::LookAtTrouble() {
  storage::StoreTrouble trouble = segments_->trouble();
  if (trouble.kind == trouble_kind_) return;
  if (trouble.kind.empty()) {
    Log(LogLevel::kInfo, "the store of rollouts goes on", {{"was", trouble_kind_}});
  } else {
    Log(LogLevel::kWarning, "the store of rollouts is in trouble",
        {{"kind", trouble.kind}, {"what", trouble.what}, {"path", trouble.path}});
  }
  trouble_kind_ = std::move(trouble.kind);
}

codec::KeepRule RunStorage::Keep(uint64_t kept_bytes) {
  MutexLock lock(&keep_mutex_);
  kept_bytes_ = kept_bytes;
  codec::KeepRule rule = keep_;
  rule.bytes_max = std::min(rule.bytes_max, kept_bytes_bound_);
  return rule;
}

// Once for each look: what is kept and what that pins are of the same moment.
void RunStorage::BoundKept() {
  const storage::StoreUse use = segments_->store_use();
  MutexLock lock(&keep_mutex_);
  const uint64_t pinned_max = node::PinnedBytesMax(keep_.bytes_max, segment_bytes_, use.live_bytes);
  kept_bytes_bound_ = use.pinned_bytes <= pinned_max
                          ? UINT64_MAX
                          : node::KeptBytesMax(kept_bytes_, use.pinned_bytes, pinned_max);
}

void RunStorage::LookForFiles() {
  if (auto status = data_->Check(); !status.ok()) failed_("storage.directory", status);
  LookAtContents(nullptr);
}

void RunStorage::LookAtContents(absl::AnyInvocable<void()> done) {
  contents_serial_->Post([this, done = std::move(done)]() mutable {
    if (content_log_ != nullptr) return content_log_->Look(std::move(done));
    if (done) done();
  });
}

uint64_t RunStorage::FreePayloadBytes() const {
  const auto use = payloads_->budget().use();
  uint64_t taken = use.used_bytes + use.waiting_bytes + use.completion_reserve_bytes;
  if (segments_ != nullptr) taken -= std::min(taken, segments_->GivesWayBytes());
  return taken < use.bytes_max ? use.bytes_max - taken : 0;
}

absl::StatusOr<std::vector<PayloadId>> RunStorage::Recovered(const Named& named) {
  static const std::vector<node::RecoveredMachine> none;
  for (const auto& machine : journal_ != nullptr ? journal_->recovered() : none) {
    notes_.push_back(absl::StrCat(machine.name, ": ", machine.log.records,
                                  " records after snapshot ", machine.log.snapshot.value, ", ",
                                  machine.log.bytes, " bytes in ", machine.log.seconds, " s"));
    for (const std::string& note : machine.log.notes) notes_.push_back(note);
  }
  const StartWatch watch(segment_disk_.get(), segments_->folder());
  if (!named.all) {
    segments_->HoldGarbage();
    notes_.push_back("a shard is absent: what it names is not known, and no file is removed");
  }
  Notification done;
  absl::StatusOr<storage::StoreRecovery> found = absl::UnknownError("");
  segments_->Recover(named.payloads, [&](absl::StatusOr<storage::StoreRecovery> answer) {
    found = std::move(answer);
    done.Notify();
  });
  // Meanwhile, on this thread and another disk.
  absl::StatusOr<storage::RecoveredContents> contents = storage::RecoveredContents();
  if (cluster_ == nullptr) contents = RecoverContents(named.contents);
  done.Wait();
  if (!found.ok()) return found.status();
  FOREBAY_RETURN_IF_ERROR(
      node::TakeFolder(segment_disk_.get(), segments_->folder(), data_->identity()));
  if (!contents.ok()) return contents.status();
  notes_.push_back(absl::StrCat("segments: ", found->segments, " with ", found->payloads,
                                " payloads, ", found->unsealed, " without an index, ",
                                found->dead_segments, " to be removed, ", found->lost.size(),
                                " payloads lost"));
  for (size_t i = 0; i < found->lost.size() && i < kLostNotesMax; ++i) {
    losses_.push_back(absl::StrCat("payload ", absl::Hex(found->lost[i].id.value),
                                   " is lost: ", found->lost[i].why));
  }
  if (!found->lost.empty()) {
    losses_.push_back(absl::StrCat(found->lost.size(),
                                   " payloads are lost: their rollouts are dropped as 'damaged', "
                                   "and the steps that hold them are planned anew"));
  }
  lost_ = std::move(found->lost);
  for (const auto& [step, wanted] : named.wanted) payloads_->Want(step, wanted);
  if (cluster_ == nullptr) OpenContents(*std::move(contents), named.all);
  std::vector<PayloadId> lost;
  for (const storage::LostPayload& payload : lost_) lost.push_back(payload.id);
  return lost;
}

}  // namespace forebay::server
