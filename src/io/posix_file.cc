#include "io/posix_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::io {

PosixFile::PosixFile(std::string path, int descriptor, bool direct, std::shared_ptr<Workers> closer)
    : path_(std::move(path)),
      descriptor_(descriptor),
      direct_(direct),
      closer_(std::move(closer)) {}

// What close reports is of no use: bytes count only after a sync, and that one reported.
PosixFile::~PosixFile() {
  if (!closer_->Post([descriptor = descriptor_] { close(descriptor); })) close(descriptor_);
}

absl::StatusOr<FileRef> OpenPosixFile(const std::string& path, OpenOptions options,
                                      std::shared_ptr<Workers> closer) {
  int flags = O_CLOEXEC;
  if (options.mode == OpenMode::kRead) flags |= O_RDONLY;
  if (options.mode == OpenMode::kWrite) flags |= O_RDWR;
  if (options.mode == OpenMode::kCreate) flags |= O_RDWR | O_CREAT | O_EXCL;
  const std::string_view operation = options.mode == OpenMode::kCreate ? "create" : "open";
  int descriptor = open(path.c_str(), flags, 0644);
  if (descriptor < 0) return ErrnoStatus(errno, operation, path);
  // Set afterwards: an open that is refused for O_DIRECT may have created the file.
  const bool direct = options.direct && fcntl(descriptor, F_SETFL, O_DIRECT) == 0;
  return std::make_shared<PosixFile>(path, descriptor, direct, std::move(closer));
}

absl::StatusOr<uint64_t> SizeOfFile(const PosixFile& file) {
  struct stat about;
  if (fstat(file.descriptor(), &about) != 0) return ErrnoStatus(errno, "stat", file.path());
  return static_cast<uint64_t>(about.st_size);
}

absl::Status RenameFile(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, "rename", absl::StrCat(from, " to ", to));
  }
  return absl::OkStatus();
}

absl::Status UnlinkFile(const std::string& path) {
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, "unlink", path);
}

absl::Status SyncDirectoryEntries(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "sync directory", path);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "sync directory", path);
}

absl::Status MakeDirectories(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0755) != 0) {
      // Some file systems refuse before they look whether it is there.
      const int error = errno;
      struct stat about;
      const bool there = stat(part.c_str(), &about) == 0;
      if (!there) return ErrnoStatus(error, "mkdir", part);
      if (!S_ISDIR(about.st_mode)) return ErrnoStatus(ENOTDIR, "mkdir", part);
    } else {
      const size_t slash = part.find_last_of('/', part.find_last_not_of('/'));
      const std::string parent = slash == std::string::npos ? "." : part.substr(0, slash + 1);
      FOREBAY_RETURN_IF_ERROR(SyncDirectoryEntries(parent));
    }
    if (end == std::string::npos) return absl::OkStatus();
  }
}

absl::StatusOr<std::vector<Entry>> ListFiles(const std::string& path) {
  // Over NFS the client would answer from what it has cached, for up to a minute.
  struct statx fresh;
  if (statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &fresh) != 0) {
    return ErrnoStatus(errno, "list", path);
  }
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return ErrnoStatus(errno, "list", path);
  const absl::Cleanup closing = [directory] { closedir(directory); };
  std::vector<Entry> entries;
  while (true) {
    errno = 0;
    const dirent* found = readdir(directory);
    if (found == nullptr) break;
    struct stat about;
    if (fstatat(dirfd(directory), found->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // gone meanwhile
      return ErrnoStatus(errno, "stat", absl::StrCat(path, "/", found->d_name));
    }
    if (S_ISREG(about.st_mode)) {
      entries.push_back({found->d_name, static_cast<uint64_t>(about.st_size)});
    }
  }
  if (errno != 0) return ErrnoStatus(errno, "list", path);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

absl::StatusOr<Space> SpaceAt(const std::string& path) {
  struct statvfs about;
  if (statvfs(path.c_str(), &about) != 0) return ErrnoStatus(errno, "statvfs", path);
  return Space{.total_bytes = static_cast<uint64_t>(about.f_blocks) * about.f_frsize,
               .free_bytes = static_cast<uint64_t>(about.f_bavail) * about.f_frsize};
}

}  // namespace forebay::io
