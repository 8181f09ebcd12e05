// An operator's acts on a cluster, through its coordinator alone: they work from any node, and when
// no node is up.
//
// Thread-safe. All calls block, for the timeout at most. Each act is a compare-and-swap of what was
// read, with an event in the same transaction, tried again when something has changed meanwhile;
// what is so already is not changed again. FailedPrecondition says why an act must not happen,
// InvalidArgument what is wrong with the request, Unavailable or DeadlineExceeded that the
// coordinator is away or its answer was lost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/configuration.h"
#include "node/cluster_keys.h"
#include "node/coordinator.h"

namespace forebay::node {

struct Operator {
  std::string who, why;
};

struct Done {
  std::string what;  // for people
  bool changed = false;
  uint64_t revision = 0;
  cluster::NodeId node;  // that was chosen, if one was to be
};

// What a node says of its log of one machine; see UnsafeFailOver.
struct ReplicaClaim {
  std::string machine;
  cluster::Incarnation incarnation;
  cluster::Epoch epoch;  // the latest one that any node has seen
  uint32_t min_in_sync = 1;
};

class ClusterOperator {
 public:
  // `replicas`: of each machine, as the configuration wants it; 0: as many as the machine with the
  // most has.
  ClusterOperator(Coordinator* coordinator, std::string cluster, uint32_t replicas,
                  absl::Duration timeout);

  absl::StatusOr<ClusterState> Read() const;

  absl::StatusOr<Done> Pause(const Operator& by) const;
  absl::StatusOr<Done> Resume(const Operator& by) const;
  absl::StatusOr<Done> Drain(cluster::NodeId node, const Operator& by) const;
  absl::StatusOr<Done> Undrain(cluster::NodeId node, const Operator& by) const;
  // `machine` "": all machines.
  absl::StatusOr<Done> AddReplica(cluster::NodeId node, const std::string& machine,
                                  const Operator& by) const;
  absl::StatusOr<Done> RemoveReplica(cluster::NodeId node, const std::string& machine,
                                     const Operator& by) const;
  // A wish, which the node that leads fulfils. `to` 0: any other.
  absl::StatusOr<Done> SwitchOver(cluster::NodeId to, const Operator& by) const;
  // Nothing that was committed is lost: `to`, or any node if it is 0, is in sync with all machines.
  // The node that led is deposed, if it still runs.
  absl::StatusOr<Done> FailOver(cluster::NodeId to, const Operator& by) const;
  // What `to` lacks is lost. A machine without a claim is taken as the coordinator knows it. Where
  // it knows nothing, its keys being lost, the claims begin it anew; there `to` should be the node
  // with the most.
  absl::StatusOr<Done> UnsafeFailOver(cluster::NodeId to, const std::string& machine,
                                      const std::vector<ReplicaClaim>& claims,
                                      const Operator& by) const;
  // What the placement would do next; nothing changes when all is as it should be.
  absl::StatusOr<Done> Rebalance(const Operator& by) const;

  // --- Of a state that was read; pure ---

  // What the placement would do next, a line each.
  std::vector<std::string> Plan(const ClusterState& state) const;
  // Over the machines; see cluster::FailuresTolerated. Without machines -1.
  static int Tolerated(const ClusterState& state);
  // If every machine had all its replicas in sync on nodes that are up.
  static int Tolerable(const ClusterState& state, uint32_t replicas);
  int Tolerable(const ClusterState& state) const { return Tolerable(state, Replicas(state)); }

 private:
  // What to change in a state that was read, and what to say of it; an empty transaction says that
  // it is so already.
  using Planned = std::function<absl::StatusOr<Done>(const ClusterState&, Transaction*)>;
  absl::StatusOr<Done> Change(const Operator& by, const Planned& plan) const;
  absl::StatusOr<Done> ChangeEach(
      const Operator& by, const std::string& machine, const std::string& what,
      const std::function<absl::StatusOr<cluster::Configuration>(
          const std::string& name, const cluster::Configuration&)>& next) const;
  void Put(const ClusterState& state, const std::string& machine,
           const cluster::Configuration& next, Transaction* transaction) const;
  uint32_t Replicas(const ClusterState& state) const;
  struct PlannedMove {
    std::string machine;
    cluster::Configuration next;
    std::string what;
  };
  std::vector<PlannedMove> Moves(const ClusterState& state) const;

  Coordinator* const coordinator_;
  const std::string cluster_;
  const std::string prefix_;
  const uint32_t replicas_;
  const absl::Duration timeout_;
};

}  // namespace forebay::node
