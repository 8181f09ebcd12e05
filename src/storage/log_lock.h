// Keeps two processes out of one directory: flock(2) on its file "lock".
//
// The kernel lets go when the process ends, however it ends, so that a kill -9 leaves nothing to
// clean up; the file itself stays and says nothing. Children keep no part of it (O_CLOEXEC). For
// local directories: over NFS a server's restart may lose it.
// A value of one owner, not thread-safe; held until it is destroyed. Take does not wait for others.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace forebay::storage {

class DirectoryLock {
 public:
  // The directory exists. Unavailable, with the holder's process id, if another has it, be it of
  // the same process; else the errno's error.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory);
  DirectoryLock(DirectoryLock&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

  // DataLoss if the file does not stand in the directory any more, or another does: who deleted or
  // moved it may have done so with the whole directory, and it keeps nobody out.
  absl::Status Check() const;

 private:
  DirectoryLock(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
};

}  // namespace forebay::storage
