// The HTTP server against clients that are slow, silent or many.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace forebay::server {
namespace {

using ::testing::HasSubstr;

class Http : public ::testing::Test {
 protected:
  Http() {
    server_.Add("/healthz", [] { return HttpPage{.body = "ok\n"}; });
    EXPECT_TRUE(server_.Start("127.0.0.1", 0).ok());
  }
  ~Http() override {
    for (const int fd : open_) close(fd);
  }
  // A connection that has sent so much of a request.
  int Connect(const std::string& sent) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(server_.port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_EQ(send(fd, sent.data(), sent.size(), 0), static_cast<ssize_t>(sent.size()));
    open_.push_back(fd);
    return fd;
  }
  static std::string ReadAll(int fd) {
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
    return answer;
  }

  HttpServer server_;
  std::vector<int> open_;
};

TEST_F(Http, AProbeIsAnsweredWhileOthersHoldTheirConnections) {
  // Twice as many as there may be threads; a thread waits two seconds for a silent one.
  for (int i = 0; i < 128; ++i) {
    Connect("");
    Connect("GET /healthz HT");
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(ReadAll(Connect("GET /healthz HTTP/1.0\r\n\r\n")), HasSubstr("ok"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_F(Http, ASilentClientIsPutOut) {
  const int silent = Connect("");
  const int half = Connect("GET /healthz HT");
  // Both come to an end by the server's hand, with whatever it says.
  ReadAll(half);
  ReadAll(silent);
}

TEST_F(Http, OnlyWhatWasAddedIsThere) {
  EXPECT_THAT(ReadAll(Connect("GET /other HTTP/1.0\r\n\r\n")), HasSubstr("404"));
}

}  // namespace
}  // namespace forebay::server
