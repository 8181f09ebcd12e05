#include "tests/simulation/machine_disk.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::simulation {
namespace {

using What = io::Fault::What;
using io::MemoryOperation;

constexpr char kRun[] = "/run";
constexpr char kLogSuffix[] = ".log";

}  // namespace

MachineDisk::MachineDisk(const HistoryOptions& options, std::string machine, EventQueue* queue,
                         Dice* dice, Stats* stats, Failed failed)
    : options_(options),
      machine_(std::move(machine)),
      directory_(absl::StrCat(kRun, "/", machine_)),
      queue_(*queue),
      dice_(*dice),
      stats_(*stats),
      failed_(std::move(failed)) {
  Begin();
}

MachineDisk::~MachineDisk() { disk_->Crash(CrashKind::kProcess); }

void MachineDisk::Begin() {
  posts_ = std::make_shared<Posts>();
  volume_->bytes_max = uint64_t{1} << 40;
  disk_ = std::make_unique<io::MemoryDisk>(
      volume_,
      io::VirtualTime{
          .now_ms = [this] { return queue_.now_ms() + recovery_.now_ms(); },
          .after = [this](uint64_t delay_ms,
                          std::function<void()> work) { After(delay_ms, std::move(work)); }},
      io::MemoryDiskOptions{.seed = dice_.Next(), .delay_most_ms = (options_.sync_ms_max + 1) / 2});
  journal_ = std::make_unique<node::DirectoryJournal>(
      disk_.get(),
      node::JournalOptions{
          .directory = kRun,
          .incarnation = ++incarnation_,
          .nonce = dice_.Next(),
          .log_file_bytes = options_.log_file_bytes,
          .log_pending_bytes_max = options_.log_pending_bytes_max,
          .snapshot_log_bytes = options_.snapshot_log_bytes,
          .failed = [this](std::string_view, const absl::Status& status) { failed_(status); },
          .snapshot =
              [this](std::string_view, const auto& taken) {
                stats_.Count(taken.ok() ? Fault::kSnapshot : Fault::kSnapshotFailed);
              },
          .turn = [this] { return recovery_.RunOne(); },
          .encode = Post(5)});
}

void MachineDisk::After(uint64_t delay_ms, std::function<void()> work) {
  if (recovering_) return recovery_.time().after(delay_ms, std::move(work));
  queue_.After(delay_ms, [this, work = std::move(work)] {
    queue_.Idle();
    work();
  });
}

storage::LogPost MachineDisk::Post(uint64_t delay_ms_max) {
  return [this, posts = std::weak_ptr<Posts>(posts_), delay_ms_max](auto work) {
    const auto alive = posts.lock();
    if (alive == nullptr) return;
    const uint64_t id = ++alive->last;
    alive->waiting.emplace(id, std::move(work));
    After(dice_.Below(delay_ms_max + 1), [posts, id] {
      const auto still = posts.lock();
      if (still == nullptr) return;
      auto next = still->waiting.extract(id);
      next.mapped()();
    });
  };
}

void MachineDisk::Crash(CrashKind kind) {
  posts_ = nullptr;
  journal_ = nullptr;
  disk_->Crash(kind);
  disk_ = nullptr;
  troubled_ = false;
  ++troubles_;
  Begin();
}

// --- damage ---

std::string MachineDisk::NewestLogFile() const {
  std::string newest;
  for (const auto& [name, inode] : volume_->FilesIn(directory_)) {
    if (absl::EndsWith(name, kLogSuffix)) newest = std::max(newest, name);
  }
  return newest;
}

void MachineDisk::NoteSynced() {
  if (options_.flip == 0) return;
  const std::string newest = NewestLogFile();
  if (newest != synced_file_) synced_ = 0;
  synced_file_ = newest;
  synced_before_ = synced_;
  synced_ = volume_->contents(*volume_->Find(absl::StrCat(directory_, "/", newest))).size();
}

bool MachineDisk::FlipBit() {
  const std::string newest = NewestLogFile();
  std::vector<std::pair<std::string, uint64_t>> places;  // files, and how much of them
  for (const auto& [name, inode] : volume_->FilesIn(directory_)) {
    uint64_t bytes = volume_->contents(inode).size();
    if (absl::EndsWith(name, ".tmp")) continue;
    if (name == newest) bytes = std::min(bytes, name == synced_file_ ? synced_before_ : 0);
    if (bytes > 0) places.emplace_back(absl::StrCat(directory_, "/", name), bytes);
  }
  if (places.empty()) return false;
  // Often where it hurts: most other files are of use only if one of these is damaged.
  const auto newest_first = [&newest](const auto& place) { return place.first.ends_with(newest); };
  const auto written = std::find_if(places.begin(), places.end(), newest_first);
  const bool there = !newest.empty() && written != places.end() && dice_.OneIn(2);
  const auto& [path, bytes] = there ? *written : places[dice_.Below(places.size())];
  disk_->FlipStoredBit(path, dice_.Below(bytes), static_cast<uint32_t>(dice_.Below(8)));
  return true;
}

// --- trouble ---

// Room for a few batches, or for none.
void MachineDisk::FillUp() { volume_->bytes_max = volume_->used_bytes() + dice_.Below(100'000); }

void MachineDisk::Trouble() {
  troubled_ = true;
  stats_.Count(Fault::kDiskTrouble);
  const std::string snapshots = absl::StrCat(directory_, "/snapshot");
  switch (dice_.Below(10)) {
    case 0:
    case 1:
      disk_->Hang();
      break;
    case 2:
      FillUp();
      break;
    case 3:
      disk_->Inject({.what = What::kFail,
                     .operation = dice_.OneIn(2) ? MemoryOperation::kWrite : MemoryOperation::kSync,
                     .skip = dice_.Below(20),
                     .error = EIO});
      break;
    case 4:
      disk_->Inject({.what = What::kFailButHappened, .skip = dice_.Below(20), .error = EIO});
      break;
    case 5:
    case 6:
    case 7:
      disk_->Inject({.what = What::kFail, .path = snapshots, .times = UINT64_MAX, .error = ENOSPC});
      break;
    default:
      disk_->Inject(
          {.what = What::kDelay, .times = UINT64_MAX, .delay_ms = dice_.Between(10, 1'000)});
  }
  queue_.After(dice_.Between(100, 8'000), [this, trouble = ++troubles_] {
    queue_.Idle();
    if (trouble == troubles_) Heal();
  });
}

void MachineDisk::FailSomeOperation() {
  disk_->Inject({.what = dice_.OneIn(2) ? What::kFail : What::kFailButHappened,
                 .skip = dice_.Below(12),
                 .error = EIO});
}

void MachineDisk::Heal() {
  volume_->bytes_max = uint64_t{1} << 40;
  disk_->Heal();
}

}  // namespace forebay::simulation
