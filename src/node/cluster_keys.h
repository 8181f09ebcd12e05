// The keys of a cluster at the coordinator, and their values.
//
// Values and pure functions. Under "/forebay/<cluster>/":
//   run                whose run it is: a line each for run, run_seed, shards (data_directory.h)
//   machines/<name>    cluster/configuration.h
//   nodes/<id>         where a node is, or was last: "grpc http", and "empty" of one without logs
//   present/<id>       the same, as long as its process is there
//   drained/<id>       an operator wants no replicas there
//   paused             an operator wants no failover by itself; the value says why
//   wish               an operator wants another node to lead: cluster_events.h
//   events/<time-id>   what happened: cluster_events.h
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/configuration.h"
#include "node/cluster_events.h"
#include "node/coordinator.h"

namespace forebay::node {

std::string ClusterPrefix(std::string_view cluster);

struct NodeAddress {
  std::string grpc, http;
  bool empty = false;  // at its start it held nothing of the run
  bool operator==(const NodeAddress&) const = default;
};
std::string EncodeNodeAddress(const NodeAddress& address);
NodeAddress DecodeNodeAddress(std::string_view value);

// What the keys say, as it was at `revision`.
struct ClusterState {
  struct Machine {
    cluster::ConfigurationRevision revision;
    cluster::Configuration configuration;
  };
  uint64_t revision = 0;
  std::map<std::string, Machine> machines;
  std::map<cluster::NodeId, NodeAddress> nodes;    // all that ever were here
  std::map<cluster::NodeId, NodeAddress> present;  // whose process is there
  std::map<cluster::NodeId, uint64_t> drained;     // revisions
  std::optional<std::string> paused;
  uint64_t paused_revision = 0;
  std::optional<SwitchoverWish> wish;
  uint64_t wish_revision = 0;
  std::map<std::string, ClusterEvent> events;  // by their key's name, which begins with the time
  // The ledger's primary: 0 if there is none, or nobody has reigned yet.
  cluster::NodeId leader() const;
  cluster::Epoch epoch() const;
};

// Keeps a ClusterState by what a watch of the prefix tells.
class ClusterReader {
 public:
  explicit ClusterReader(std::string prefix) : prefix_(std::move(prefix)) {}
  // What could not be read, a line each.
  std::vector<std::string> Read(const WatchEvent& event);
  std::vector<std::string> Read(const KeyState& state);
  const ClusterState& state() const { return state_; }
  bool known() const { return known_; }  // a state was read

 private:
  void Put(const std::string& key, const std::optional<std::string>& value, uint64_t revision,
           std::vector<std::string>* wrong);

  const std::string prefix_;
  ClusterState state_;
  bool known_ = false;
};

}  // namespace forebay::node
