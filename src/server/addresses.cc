#include "server/addresses.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::server {
namespace {

// A folder that nobody else can put sockets into.
absl::Status MakePrivateFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        absl::StrCat("listen.unix: cannot make ", path, ": ", std::strerror(errno)));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
      (info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "listen.unix: ", path, " is not a folder of this user alone; name another socket"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostPort> ParseAddress(const char* entry, const std::string& address) {
  const size_t colon = address.rfind(':');
  HostPort out;
  bool good = colon != std::string::npos && colon > 0;
  if (good) {
    out.host = address.substr(0, colon);
    const char* begin = address.data() + colon + 1;
    const char* end = address.data() + address.size();
    const auto result = std::from_chars(begin, end, out.port);
    good = result.ec == std::errc() && result.ptr == end && out.port >= 0 && out.port <= 65'535;
    const bool bracketed = out.host.front() == '[' && out.host.back() == ']';
    good = good && (bracketed || out.host.find(':') == std::string::npos);
  }
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat(entry, ": is '", address, "', must be HOST:PORT, PORT at most 65535"));
  }
  return out;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

absl::Status CheckReach(const char* entry, const std::string& host, bool allowed) {
  if (IsLoopback(host) || allowed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      entry, ": ", host, " is not loopback; set tls.cert and tls.key, or listen.allow_remote"));
}

absl::StatusOr<std::string> UnixPath(const node::Config& config) {
  std::string path = config.listen_unix;
  if (path == "auto") {
    int port = 0;
    if (!config.listen_grpc.empty()) {
      auto address = ParseAddress("listen.grpc", config.listen_grpc);
      if (!address.ok()) return address.status();
      port = address->port;
    }
    const std::string name =
        port != 0 ? absl::StrCat(port) : absl::StrCat("pid-", static_cast<int64_t>(getpid()));
    const char* runtime = std::getenv("XDG_RUNTIME_DIR");
    if (runtime != nullptr && *runtime != '\0') {
      path = absl::StrCat(runtime, "/forebay-", name, ".sock");
    } else {
      const std::string folder = absl::StrCat("/tmp/forebay-", static_cast<uint64_t>(getuid()));
      FOREBAY_RETURN_IF_ERROR(MakePrivateFolder(folder));
      path = absl::StrCat(folder, "/", name, ".sock");
    }
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("listen.unix: is '", path, "', the limit is ",
                                                   sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  return path;
}

absl::Status ClearUnixPath(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat("listen.unix: ", path, " is there and is no socket"));
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const bool alive =
      fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (fd >= 0) close(fd);
  if (alive) {
    return absl::AlreadyExistsError(absl::StrCat("listen.unix: another process listens on ", path));
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace forebay::server
