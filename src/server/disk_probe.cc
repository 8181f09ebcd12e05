#include "server/disk_probe.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace forebay::server {
namespace {

constexpr size_t kProbeBytes = 4096;

absl::Status Error(const char* what, const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(error)));
}

// Writes and syncs a file of a name that is not there.
absl::Status WriteFile(const std::string& path, const std::string& content) {
  const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return Error("make", path, errno);
  const ssize_t wrote = write(fd, content.data(), content.size());
  int error = wrote == static_cast<ssize_t>(content.size()) ? 0 : (wrote < 0 ? errno : ENOSPC);
  if (error == 0 && fdatasync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(path.c_str());
  return Error("write", path, error);
}

std::string PathOf(const std::string& directory, uint64_t nonce, uint32_t node) {
  return absl::StrCat(directory, "/doctor-", absl::Hex(nonce, absl::kZeroPad16), "-", node);
}

std::string ContentOf(uint64_t nonce, uint32_t node) {
  return absl::StrCat("forebay doctor ", absl::Hex(nonce, absl::kZeroPad16), " node ", node, "\n");
}

}  // namespace

absl::StatusOr<DiskLook> LookAtDisk(const std::string& directory) {
  DiskLook look;
  struct statvfs room {};
  if (statvfs(directory.c_str(), &room) != 0) return Error("look at", directory, errno);
  look.free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  look.total_bytes = uint64_t{room.f_blocks} * room.f_frsize;
  const auto begin = std::chrono::steady_clock::now();
  const std::string path = absl::StrCat(directory, "/doctor-sync-", getpid());
  if (absl::Status status = WriteFile(path, std::string(kProbeBytes, 'x')); !status.ok()) {
    return status;
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  look.sync_us =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count());
  if (unlink(path.c_str()) != 0) return Error("remove", path, errno);
  return look;
}

absl::Status WriteProbe(const std::string& directory, uint64_t nonce, uint32_t node) {
  return WriteFile(PathOf(directory, nonce, node), ContentOf(nonce, node));
}

bool HasProbe(const std::string& directory, uint64_t nonce, uint32_t node) {
  std::ifstream file(PathOf(directory, nonce, node));
  std::string line;
  return std::getline(file, line) && line + "\n" == ContentOf(nonce, node);
}

absl::Status RemoveProbe(const std::string& directory, uint64_t nonce, uint32_t node) {
  const std::string path = PathOf(directory, nonce, node);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return Error("remove", path, errno);
}

}  // namespace forebay::server
