#include "storage/segment_presence.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/units.h"

namespace forebay::storage {
namespace {

bool FolderIsGone(const absl::Status& status) {
  const int error = io::ErrorOf(status);
  return error == ENOENT || error == ENOTDIR || error == ESTALE;
}

}  // namespace

SegmentPresence::SegmentPresence(io::Disk* disk, const SegmentStoreOptions& options,
                                 std::string folder, std::shared_ptr<SegmentTable> table,
                                 std::shared_ptr<SegmentWriter> writer)
    : disk_(disk),
      options_(options),
      folder_(std::move(folder)),
      table_(std::move(table)),
      writer_(std::move(writer)) {}

void SegmentPresence::Start() {
  MutexLock lock(&mutex_);
  looks_ = !closed_;
  next_look_ms_ = options_.now_ms() + options_.presence_ms;
}

void SegmentPresence::Tick() {
  {
    MutexLock lock(&mutex_);
    if (!looks_ || options_.now_ms() < next_look_ms_) return;
    looks_ = false;
  }
  // What is created while the folder is listed may be missing from the list.
  disk_->List(folder_, [self = shared_from_this(), before = table_->InUse()](const auto& files) {
    self->Listed(before, files);
  });
}

void SegmentPresence::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  looks_ = false;
}

void SegmentPresence::Listed(const std::vector<SegmentInUse>& before,
                             const absl::StatusOr<std::vector<io::Entry>>& files) {
  const bool known = files.ok() || FolderIsGone(files.status());
  std::set<std::string> there;
  if (files.ok()) {
    for (const io::Entry& file : *files) there.insert(absl::StrCat(folder_, "/", file.name));
  }
  std::set<uint32_t> gone;
  if (known) {
    for (const SegmentInUse& segment : before) {
      if (!there.contains(segment.path)) gone.insert(segment.number);
    }
  }
  {
    MutexLock lock(&mutex_);
    looks_ = !closed_;
    next_look_ms_ = options_.now_ms() + options_.presence_ms;
    if (!looks_ || !known) return;
    if (gone_.empty()) since_ms_ = options_.now_ms();
    gone_ = gone;
    folder_gone_ = !files.ok();
  }
  for (const uint32_t number : gone) writer_->Leave(number);
}

bool SegmentPresence::IsGone(uint32_t number) {
  MutexLock lock(&mutex_);
  if (!folder_gone_ && gone_.contains(number)) return true;
  next_look_ms_ = 0;
  return false;
}

StoreTrouble SegmentPresence::trouble() const {
  StoreTrouble trouble;
  MutexLock lock(&mutex_);
  if (gone_.empty()) return trouble;
  uint64_t files = 0, payloads = 0, cold = 0, bytes = 0;
  for (const SegmentInUse& segment : table_->InUse()) {
    if (segment.live == 0 || !gone_.contains(segment.number)) continue;
    if (files++ == 0) trouble.path = folder_gone_ ? folder_ : segment.path;
    (segment.part == Part::kHot ? payloads : cold) += segment.live;
    bytes += segment.live_bytes;
  }
  if (files == 0) return trouble;
  trouble.kind = "incomplete";
  trouble.what = absl::StrCat(files, files == 1 ? " file is" : " files are", " gone, with ");
  if (payloads > 0) absl::StrAppend(&trouble.what, payloads, " rollouts, ");
  if (cold > 0) absl::StrAppend(&trouble.what, "cold columns of ", cold, " rollouts, ");
  absl::StrAppend(&trouble.what, BytesText(bytes));
  trouble.since_ms = since_ms_;
  return trouble;
}

void SegmentPresence::AddUse(StoreUse* use) const {
  MutexLock lock(&mutex_);
  if (gone_.empty()) return;
  for (const SegmentInUse& segment : table_->InUse()) {
    use->segments_gone += segment.live > 0 && gone_.contains(segment.number) ? 1 : 0;
  }
}

}  // namespace forebay::storage
