#include "storage/log_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::storage {

absl::StatusOr<std::vector<LogFileNameParts>> LogFilesAmong(const std::vector<io::Entry>& entries,
                                                            const std::string& machine) {
  std::vector<LogFileNameParts> files;
  for (const io::Entry& entry : entries) {
    auto parts = ParseLogFileName(entry.name);
    if (!parts.has_value()) continue;
    if (parts->machine != machine) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the file ", entry.name, " is of another machine than ", machine,
          "; each has a directory of its own: look whether the configured one is right"));
    }
    files.push_back(*std::move(parts));
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return files;
}

void UnlinkLogFilesBefore(io::Disk* disk, std::string directory, std::string machine,
                          LogPosition position, uint64_t last_number) {
  const std::string listed = directory;
  disk->List(listed, [=, directory = std::move(directory), machine = std::move(machine)](
                         absl::StatusOr<std::vector<io::Entry>> entries) {
    if (!entries.ok()) return;
    const auto files = LogFilesAmong(*entries, machine);
    if (!files.ok()) return;
    // The oldest first: should only some be gone after a crash, no hole is left.
    for (size_t i = 0; i + 1 < files->size(); ++i) {
      const LogFileNameParts& file = (*files)[i];
      const LogFileNameParts& follower = (*files)[i + 1];
      if (follower.number > last_number || follower.first > position) return;
      disk->Unlink(absl::StrCat(directory, "/", LogFileName(machine, file.number, file.first)),
                   [](absl::Status) {});  // still there, it is found the next time
    }
  });
}

}  // namespace forebay::storage
