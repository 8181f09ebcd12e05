// OperatorService: what any node of a cluster answers to those who look after it.
//
// Thread-safe. Calls run one after another on two threads of the service, since they wait for the
// coordinator or for a disk; so many wait at most. Close before what it was given goes: it waits
// for what runs, as long as a disk hangs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "forebay/v1/operator.pb.h"
#include "node/cluster_operator.h"
#include "node/config.h"
#include "node/coordinator.h"
#include "node/machine_replica.h"
#include "peers/options.h"
#include "server/grpc/method_table.h"

namespace forebay::server {

struct OperatorPorts {
  node::Coordinator* coordinator = nullptr;
  const node::Config* config = nullptr;
  const std::vector<std::shared_ptr<node::MachineReplica>>* replicas = nullptr;
  std::function<bool()> leads;
  std::function<peers::PeerStatsMap()> peer_stats;
  uint64_t started_ms = 0;  // by Engine::NowMs
};

class OperatorService {
 public:
  explicit OperatorService(OperatorPorts ports);
  ~OperatorService();
  void AddTo(MethodTable* methods);
  void Close();

 private:
  // Acts and disks apart: a disk that hangs must not hold up a failover.
  struct Lane;
  template <class Request, class Response>
  using Answer = std::function<absl::StatusOr<Response>(const Request&)>;
  template <class Request, class Response>
  static void Add(MethodTable* methods, const char* name, Lane* lane,
                  Answer<Request, Response> answer);

  absl::StatusOr<v1::OperatorState> GetState() const;
  absl::StatusOr<v1::OperatorChangeResponse> Change(const v1::OperatorChangeRequest& request) const;
  v1::NodeState GetNode() const;
  v1::ProbeStoreResponse ProbeStore(const v1::ProbeStoreRequest& request) const;

  const OperatorPorts ports_;
  const node::ClusterOperator operator_;
  const std::unique_ptr<Lane> acts_, disks_;
  bool closed_ = false;
};

// What every replica says of itself; one that does not answer in time is missing.
std::vector<std::pair<std::string, node::ReplicaView>> LookAtReplicas(
    const std::vector<std::shared_ptr<node::MachineReplica>>& replicas, absl::Duration timeout);

}  // namespace forebay::server
