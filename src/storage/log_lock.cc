#include "storage/log_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "io/disk.h"

namespace forebay::storage {
namespace {

std::string HolderOf(int descriptor) {
  char text[32];
  const ssize_t size = pread(descriptor, text, sizeof(text), 0);
  return size > 0 ? absl::StrCat("process ", std::string(text, static_cast<size_t>(size)))
                  : "another process";
}

}  // namespace

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/lock");
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return io::ErrnoStatus(errno, "open", path);
  DirectoryLock lock(path, descriptor);
  int locked = 0;
  do {
    locked = flock(descriptor, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 && errno == EWOULDBLOCK) {
    return absl::UnavailableError(
        absl::StrCat(directory, " is in use by ", HolderOf(descriptor), ", which locks ", path));
  }
  if (locked != 0) return io::ErrnoStatus(errno, "lock", path);
  // For the message above alone, so that a full disk is no hindrance.
  const std::string holder = absl::StrCat(getpid());
  if (ftruncate(descriptor, 0) == 0 && pwrite(descriptor, holder.data(), holder.size(), 0) < 0) {
    errno = 0;
  }
  return lock;
}

absl::Status DirectoryLock::Check() const {
  struct stat held, found;
  const bool there = stat(path_.c_str(), &found) == 0;
  // Whatever else stands in the way says nothing of the file.
  if (!there && errno != ENOENT && errno != ENOTDIR) return absl::OkStatus();
  if (there && fstat(descriptor_, &held) == 0 && held.st_nlink > 0 && held.st_dev == found.st_dev &&
      held.st_ino == found.st_ino) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(path_, " was deleted, moved away or replaced while this process held it"));
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace forebay::storage
