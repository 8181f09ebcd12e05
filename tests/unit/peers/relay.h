// A relay of TCP connections on loopback that can stand still, as a frozen machine does.
//
// Freeze may come from any thread; all else from one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::peers {

// Passes connections on to a port of loopback, or stands still. Freeze may come from any thread.
class Relay {
 public:
  explicit Relay(int target) : target_(target), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    FOREBAY_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    FOREBAY_CHECK(listen(listener_, 16) == 0);
    socklen_t size = sizeof(address);
    FOREBAY_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      while (!ended_) Turn();
    });
  }
  ~Relay() {
    ended_ = true;
    thread_.join();
    for (const auto& [from, to] : pairs_) {
      close(from);
      close(to);
    }
    close(listener_);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void Freeze(bool frozen) { frozen_ = frozen; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  void Turn() {
    if (frozen_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // poll: the end of the frost
      return;
    }
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    for (const auto& [from, to] : pairs_) {
      polled.push_back({from, POLLIN, 0});
      polled.push_back({to, POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), 10) <= 0) return;
    std::vector<std::pair<int, int>> left;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const auto [from, to] = pairs_[i];
      if (Pass(polled[1 + 2 * i], from, to) && Pass(polled[2 + 2 * i], to, from)) {
        left.push_back(pairs_[i]);
        continue;
      }
      close(from);
      close(to);
    }
    pairs_ = std::move(left);
    if ((polled[0].revents & POLLIN) != 0) Accept();
  }
  static bool Pass(const pollfd& polled, int from, int to) {
    if (polled.revents == 0) return true;
    char bytes[65'536];
    const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    return send(to, bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }
  void Accept() {
    const int from = accept(listener_, nullptr, nullptr);
    const int to = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(target_);
    if (connect(to, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      close(from);
      close(to);
      return;
    }
    pairs_.emplace_back(from, to);
  }

  const int target_;
  const int listener_;
  int port_ = 0;
  std::vector<std::pair<int, int>> pairs_;
  std::atomic<bool> frozen_{false}, ended_{false};
  std::thread thread_;
};

}  // namespace forebay::peers
