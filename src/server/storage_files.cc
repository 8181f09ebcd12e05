#include "server/storage_files.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/log_format.h"
#include "storage/snapshot_format.h"

namespace forebay::server {
namespace {

MachineFiles Sort(std::string machine, const std::vector<io::Entry>& entries) {
  MachineFiles files{.machine = std::move(machine)};
  for (const io::Entry& entry : entries) {
    if (storage::ParseLogFileName(entry.name).has_value()) {
      ++files.log_files;
      files.log_bytes += entry.bytes;
    } else if (storage::ParseSnapshotName(entry.name).has_value()) {
      ++files.snapshots;
      files.snapshot_bytes += entry.bytes;
    } else {
      ++files.other_files;
      files.other_bytes += entry.bytes;
    }
  }
  return files;
}

// One question after another.
class Look : public std::enable_shared_from_this<Look> {
 public:
  Look(FileSites sites, std::function<void(RunFiles)> done)
      : sites_(std::move(sites)), done_(std::move(done)) {}

  void ListNext() {
    const size_t next = files_.machines.size();
    if (next == sites_.machines.size()) return AskLogSpace();
    const std::string& machine = sites_.machines[next];
    sites_.log_disk->List(
        absl::StrCat(sites_.directory, "/", machine),
        [self = shared_from_this(), machine](absl::StatusOr<std::vector<io::Entry>> entries) {
          if (!entries.ok()) return self->End(entries.status());
          self->files_.machines.push_back(Sort(machine, *entries));
          self->ListNext();
        });
  }

 private:
  void AskLogSpace() {
    sites_.log_disk->SpaceOf(sites_.directory,
                             [self = shared_from_this()](absl::StatusOr<io::Space> space) {
                               if (!space.ok()) return self->End(space.status());
                               self->files_.log_space = *space;
                               self->AskSegmentSpace();
                             });
  }
  void AskSegmentSpace() {
    sites_.segment_disk->SpaceOf(sites_.segment_directory,
                                 [self = shared_from_this()](absl::StatusOr<io::Space> space) {
                                   if (space.ok()) self->files_.segment_space = *space;
                                   self->End(space.status());
                                 });
  }
  void End(absl::Status status) {
    files_.status = std::move(status);
    done_(std::move(files_));
  }

  const FileSites sites_;
  const std::function<void(RunFiles)> done_;
  RunFiles files_;
};

}  // namespace

void LookAtFiles(FileSites sites, std::function<void(RunFiles)> done) {
  std::make_shared<Look>(std::move(sites), std::move(done))->ListNext();
}

}  // namespace forebay::server
