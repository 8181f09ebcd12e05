// Any bytes on the HTTP port: the connection ends, and the next one is served.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http_server.h"

namespace {

forebay::server::HttpServer& Server() {
  static forebay::server::HttpServer* const server = [] {
    std::signal(SIGPIPE, SIG_IGN);
    auto* started = new forebay::server::HttpServer;  // lives as long as the process
    started->Add("/healthz", [] { return forebay::server::HttpPage{.body = "ok\n"}; });
    FOREBAY_CHECK(started->Start("127.0.0.1", 0).ok());
    return started;
  }();
  return *server;
}

// Sends the bytes and reads what is answered, until the server closes or says nothing for so long.
// A side that says early that it will send no more is not answered at all.
std::string Exchange(std::string_view bytes, int patience_ms) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(Server().port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FOREBAY_CHECK(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  // A reset leaves no state in TIME_WAIT, of which there would soon be too many.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), 0);
    if (sent <= 0) break;  // refused before its end
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  std::string answer;
  char buffer[4096];
  pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
  while (poll(&readable, 1, patience_ms) > 0) {
    const ssize_t got = recv(socket, buffer, sizeof(buffer), 0);
    if (got <= 0) break;
    answer.append(buffer, static_cast<size_t>(got));
  }
  close(socket);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kPatienceMs = 2;  // an input that the server waits on goes no further
  constexpr int kProbeMs = 10'000;
  static uint32_t inputs = 0;
  Exchange({reinterpret_cast<const char*>(data), size}, kPatienceMs);
  if (++inputs % 64 == 0) {
    const std::string answer =
        Exchange("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", kProbeMs);
    FOREBAY_CHECK(answer.starts_with("HTTP/1.1 200"));
  }
  return 0;
}
