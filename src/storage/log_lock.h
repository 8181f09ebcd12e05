// Keeps two processes out of one directory: flock(2) on its file "lock".
//
// The kernel lets go when the process ends, however it ends, so that a kill -9 leaves nothing to
// clean up; the file itself stays and says nothing. Children keep no part of it (O_CLOEXEC). For
// local directories: over NFS a server's restart may lose it.
// A value of one owner, not thread-safe; held until it is destroyed. Take does not wait for others.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace forebay::storage {

class DirectoryLock {
 public:
  // The directory exists. Unavailable, with the holder's process id, if another has it, be it of
  // the same process; else the errno's error.
  static absl::StatusOr<DirectoryLock> Take(const std::string& directory);
  DirectoryLock(DirectoryLock&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace forebay::storage
