// A file that is there whole or not at all: written aside under a temporary name, synced, renamed.
//
// One thread. What is not committed is removed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace forebay::ctl {

// A temporary file; unlinked with the object unless it was renamed.
class ScratchFile {
 public:
  // In the folder of `path`, with a name of its own that begins like it.
  static absl::StatusOr<ScratchFile> Create(const std::string& path);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  uint64_t bytes() const { return bytes_; }
  absl::Status Append(std::string_view bytes);
  // Takes back what was appended since the file had `bytes` bytes.
  absl::Status TruncateTo(uint64_t bytes);
  // Appends all of another's bytes.
  absl::Status AppendAll(const ScratchFile& other);
  // Syncs it and gives it its name. AlreadyExists if there is such a file and `replace` is not set.
  absl::Status RenameTo(const std::string& path, bool replace);

 private:
  ScratchFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status Error(const char* what) const;

  std::string path_;  // "" once it is renamed
  int descriptor_;
  uint64_t bytes_ = 0;
};

}  // namespace forebay::ctl
