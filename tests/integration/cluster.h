// A real cluster on loopback: etcd, and nodes that share a store, each a process of its own.
//
// One thread. The processes end with the object. What a node's log says is shown when a wait fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "forebay/v1/cluster.pb.h"
#include "tests/integration/daemon.h"
#include "tests/integration/etcd_process.h"
#include "tests/integration/run_directory.h"

namespace forebay::integration {

class Cluster {
 public:
  // A node leads, and all are in sync, when this returns.
  explicit Cluster(size_t nodes = 3, std::vector<std::string> flags = {}, size_t etcd_members = 1);

  size_t size() const { return nodes_.size(); }
  // Nodes count from 1, as they do for themselves.
  Daemon& node(uint32_t id) { return *nodes_[id - 1]; }
  EtcdCluster& etcd() { return etcd_; }
  // Of all nodes, for clients.
  std::string seeds() const;
  std::string directory(uint32_t id) const;
  std::string store() const { return directory_.path() + "/store"; }

  // As a node sees it. Fails if it does not answer.
  v1::ClusterView View(uint32_t asked) const;
  // The node that leads and answers, other than `not_this`; waits for it. 0 after a timeout.
  uint32_t AwaitLeader(uint32_t not_this = 0, absl::Duration timeout = absl::Seconds(20));
  // Every node is in sync with every machine, but those named; false after a timeout.
  bool AwaitInSync(const std::vector<uint32_t>& but = {},
                   absl::Duration timeout = absl::Seconds(30));
  // This machine has it in sync, or not.
  bool AwaitMember(const std::string& machine, uint32_t id, bool in_sync,
                   absl::Duration timeout = absl::Seconds(30));
  // No machine has it in sync any more.
  bool AwaitOutOfSync(uint32_t id, absl::Duration timeout = absl::Seconds(30));
  // What all nodes said, for a failure's message.
  std::string Logs() const;

 private:
  bool AwaitView(const std::function<bool(const v1::ClusterView&)>& good, absl::Duration timeout);

  EtcdCluster etcd_;
  RunDirectory directory_;
  std::vector<std::unique_ptr<Daemon>> nodes_;
};

}  // namespace forebay::integration
