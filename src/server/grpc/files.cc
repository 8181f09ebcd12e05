#include "server/grpc/files.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace forebay::server {
namespace {

// Binds and lets go again. 0 or an errno.
int TryBind(int family, const sockaddr* address, socklen_t size) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool good = bind(fd, address, size) == 0 && listen(fd, 1) == 0;
  const int error = good ? 0 : errno;
  close(fd);
  return error;
}

std::string WhyNotUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return std::strerror(ENAMETOOLONG);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int error = TryBind(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (error != 0) return std::strerror(error);
  unlink(path.c_str());
  return "";
}

}  // namespace

absl::Status FileError(const char* entry, const char* verb, const std::string& path, int error) {
  return absl::Status(
      absl::ErrnoToStatusCode(error),
      absl::StrCat(entry, ": cannot ", verb, " '", path, "': ", std::strerror(error)));
}

absl::StatusOr<std::string> ReadFile(const char* entry, const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(entry, "read", path, errno);
  std::string out;
  char buffer[16 * 1024];
  ssize_t n = 0;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) out.append(buffer, static_cast<size_t>(n));
  const int error = errno;
  close(fd);
  if (n < 0) return FileError(entry, "read", path, error);
  return out;
}

std::string WhyNotListen(const std::string& address) {
  absl::string_view rest = address;
  if (absl::ConsumePrefix(&rest, "unix:")) return WhyNotUnix(std::string(rest));
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "no port";
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      error != 0) {
    return gai_strerror(error);
  }
  const int error = TryBind(found->ai_family, found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace forebay::server
