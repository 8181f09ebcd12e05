// Nodes for the tests of src/peers: servers on loopback with a port that remembers what came, and a
// relay that can stand still as a frozen machine does.
//
// Thread-safe where the comment says so; else one thread at a time.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/sync.h"
#include "peers/grpc_peer_transport.h"
#include "peers/peer_service.h"
#include "server/grpc/rpc_server.h"

namespace forebay::peers {

constexpr absl::Duration kPatience = absl::Seconds(60);
inline const cluster::NodeId kOne(1), kTwo(2), kThree(3);

// Whether it came true in time.
inline bool Becomes(const std::function<bool()>& condition) {
  const Deadline deadline = DeadlineIn(kPatience);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // poll: the condition
  }
  return true;
}

// Takes one snapshot; see RecordingPort.
struct TakenSnapshot {
  std::string machine, head, bytes;
  bool ended = false;
  bool gone = false;  // the receiver is destroyed
};

// Remembers all that comes. Thread-safe.
class RecordingPort : public node::PeerPort {
 public:
  using Message = std::pair<std::string, std::string>;

  void OnMessage(std::string_view machine, std::string_view bytes) override {
    MutexLock lock(&mutex_);
    while (held_) changed_.Wait(&mutex_);
    messages_.emplace_back(machine, bytes);
    changed_.NotifyAll();
  }
  std::unique_ptr<node::SnapshotReceiver> OnSnapshot(std::string_view machine,
                                                     std::string_view head) override;

  // Messages block from now on, or go on.
  void Hold(bool held) {
    MutexLock lock(&mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  std::vector<Message> messages() {
    MutexLock lock(&mutex_);
    return messages_;
  }
  // All that have come once there are so many.
  std::vector<Message> Await(size_t count) {
    const Deadline deadline = DeadlineIn(kPatience);
    MutexLock lock(&mutex_);
    while (messages_.size() < count && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return messages_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Message> messages_ ABSL_GUARDED_BY(mutex_);
};

inline std::unique_ptr<node::SnapshotReceiver> RecordingPort::OnSnapshot(
    std::string_view /*machine*/, std::string_view /*head*/) {
  return nullptr;
}

// What a node serves to its peers.
class Node {
 public:
  explicit Node(cluster::NodeId self, server::RpcServerOptions options = {},
                std::string cluster = "test")
      : service_({.cluster = std::move(cluster), .self = self}, &port_),
        options_(std::move(options)) {
    service_.AddTo(&methods_);
    options_.addresses = {"127.0.0.1:0"};
    Start();
    options_.addresses = {address()};
  }
  // Starts anew on the same port.
  void Start() {
    auto server = server::RpcServer::Start(options_, &methods_);
    FOREBAY_CHECK(server.ok());
    server_ = *std::move(server);
    if (tcp_port_ == 0) tcp_port_ = server_->ports()[0];
  }
  void Stop() {
    server_->Shutdown(std::chrono::milliseconds(0));
    server_.reset();
  }
  ~Node() { port_.Hold(false); }

  int tcp_port() const { return tcp_port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", tcp_port_); }
  RecordingPort& port() { return port_; }
  PeerStats Stats(cluster::NodeId from) {
    PeerStatsMap stats;
    service_.GetStats(&stats);
    return stats[from];
  }

 private:
  RecordingPort port_;
  PeerService service_;
  server::MethodTable methods_;
  server::RpcServerOptions options_;
  std::unique_ptr<server::RpcServer> server_;
  int tcp_port_ = 0;
};

inline std::unique_ptr<GrpcPeerTransport> MakeTransport(
    const std::map<cluster::NodeId, std::string>& peers, PeerTransportOptions options = {}) {
  if (options.cluster.empty()) options.cluster = "test";
  if (options.self.value == 0) options.self = kOne;
  auto transport = GrpcPeerTransport::Create(options);
  FOREBAY_CHECK(transport.ok());
  (*transport)->SetPeers(peers);
  return *std::move(transport);
}

inline PeerStats StatsOf(GrpcPeerTransport* transport, cluster::NodeId peer) {
  PeerStatsMap stats;
  transport->GetStats(&stats);
  return stats[peer];
}

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
