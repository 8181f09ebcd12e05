#include "ctl/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::ctl {
namespace {

constexpr size_t kCopyBytes = size_t{1} << 20;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status ErrnoError(const char* what, const std::string& path) {
  // Nothing to do with a daemon's address.
  return absl::FailedPreconditionError(
      absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno)));
}

// The new name is durable once its folder is.
absl::Status SyncFolder(const std::string& path) {
  const int folder = open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return ErrnoError("open the folder of", path);
  const int result = fsync(folder);
  absl::Status status = result == 0 ? absl::OkStatus() : ErrnoError("sync the folder of", path);
  close(folder);
  return status;
}

}  // namespace

absl::StatusOr<ScratchFile> ScratchFile::Create(const std::string& path) {
  std::string name = path + ".XXXXXX";
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) return ErrnoError("create a file beside", path);
  // As other files of this user: mkostemp makes one that nobody else may read.
  const mode_t mask = umask(0);
  umask(mask);
  ScratchFile file(name, descriptor);
  if (fchmod(descriptor, 0666 & ~mask) != 0) return ErrnoError("set the mode of", name);
  return file;
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : path_(std::exchange(other.path_, "")),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

ScratchFile::~ScratchFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!path_.empty()) unlink(path_.c_str());
}

absl::Status ScratchFile::Error(const char* what) const { return ErrnoError(what, path_); }

absl::Status ScratchFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Error("write");
    bytes.remove_prefix(static_cast<size_t>(written));
    bytes_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status ScratchFile::TruncateTo(uint64_t bytes) {
  const auto end = static_cast<off_t>(bytes);
  if (ftruncate(descriptor_, end) != 0 || lseek(descriptor_, end, SEEK_SET) != end) {
    return Error("cut");
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status ScratchFile::AppendAll(const ScratchFile& other) {
  const auto buffer = std::make_unique<char[]>(kCopyBytes);
  for (uint64_t at = 0; at < other.bytes_;) {
    const size_t size = std::min<uint64_t>(kCopyBytes, other.bytes_ - at);
    const ssize_t read = pread(other.descriptor_, buffer.get(), size, static_cast<off_t>(at));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return other.Error("read");
    const auto bytes = static_cast<size_t>(read);
    if (auto status = Append({buffer.get(), bytes}); !status.ok()) return status;
    at += bytes;
  }
  return absl::OkStatus();
}

absl::Status ScratchFile::RenameTo(const std::string& path, bool replace) {
  if (fsync(descriptor_) != 0) return Error("sync");
  if (replace) {
    // A device, a pipe or a link would be gone, and a file stand in its place.
    struct stat about {};
    if (lstat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", path, "' is no plain file: --force replaces nothing else"));
    }
    if (std::rename(path_.c_str(), path.c_str()) != 0) return Error("rename");
    path_.clear();
  } else if (link(path_.c_str(), path.c_str()) != 0) {
    // Linked, not renamed: that a file came to be there meanwhile must not be its end. The old name
    // goes with the object.
    if (errno == EEXIST) {
      return absl::AlreadyExistsError(absl::StrCat("'", path, "' is there; --force replaces it"));
    }
    return Error("give its name to");
  }
  return SyncFolder(path);
}

}  // namespace forebay::ctl
