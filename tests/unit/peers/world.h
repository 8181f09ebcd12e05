// Nodes for the tests of src/peers: servers on loopback, and transports to them.
//
// One thread at a time, but for the ports.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "peers/grpc_peer_transport.h"
#include "peers/peer_service.h"
#include "server/grpc/rpc_server.h"
#include "tests/unit/peers/recording_port.h"

namespace forebay::peers {

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

// What a node serves to its peers.
class Node {
 public:
  explicit Node(cluster::NodeId self, server::RpcServerOptions options = {},
                PeerServiceOptions service = {})
      : service_(Complete(std::move(service), self), &port_), options_(std::move(options)) {
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
  ~Node() {
    port_.Hold(false);
    port_.HoldSnapshots(false);
  }

  int tcp_port() const { return tcp_port_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", tcp_port_); }
  RecordingPort& port() { return port_; }
  PeerStats Stats(cluster::NodeId from) {
    PeerStatsMap stats;
    service_.GetStats(&stats);
    return stats[from];
  }

 private:
  static PeerServiceOptions Complete(PeerServiceOptions options, cluster::NodeId self) {
    if (options.cluster.empty()) options.cluster = "test";
    options.self = self;
    return options;
  }

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

}  // namespace forebay::peers
