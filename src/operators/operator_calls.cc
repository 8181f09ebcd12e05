#include "operators/operator_calls.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/placement.h"

namespace forebay::operators {
namespace {

using cluster::NodeId;

constexpr size_t kNoteBytesMax = 1024;

void FillNodes(const node::ClusterState& state, v1::OperatorState* out) {
  std::map<NodeId, node::NodeAddress> nodes = state.nodes;
  for (const auto& [id, address] : state.present) nodes[id] = address;
  for (const auto& [id, address] : nodes) {
    v1::OperatorNode* node = out->add_nodes();
    node->set_id(id.value);
    node->set_address(address.grpc);
    node->set_http_address(address.http);
    node->set_present(state.present.contains(id));
    node->set_drained(state.drained.contains(id));
  }
}

void FillMachines(const node::ClusterState& state, v1::OperatorState* out) {
  std::set<NodeId> up;
  for (const auto& [id, address] : state.present) up.insert(id);
  for (const auto& [name, held] : state.machines) {
    const cluster::Configuration& of = held.configuration;
    v1::OperatorMachine* machine = out->add_machines();
    machine->set_name(name);
    machine->set_epoch(of.epoch.value);
    machine->set_primary(of.primary.value);
    for (const NodeId node : of.in_sync) machine->add_in_sync(node.value);
    for (const auto& [node, incarnation] : of.incarnations) {
      v1::OperatorReplica* replica = machine->add_replicas();
      replica->set_node(node.value);
      replica->set_incarnation(incarnation.value);
      replica->set_leaving(of.Leaving(node));
    }
    machine->set_min_in_sync(of.min_in_sync);
    machine->set_tolerated(cluster::FailuresTolerated(of, up));
  }
}

}  // namespace

absl::StatusOr<v1::OperatorState> GetState(const node::ClusterOperator& cluster,
                                           const std::string& name) {
  auto state = cluster.Read();
  if (!state.ok()) return state.status();
  v1::OperatorState out;
  out.set_cluster(name);
  out.set_revision(state->revision);
  out.set_leader(state->leader().value);
  out.set_epoch(state->epoch().value);
  out.set_leader_present(state->present.contains(state->leader()));
  FillNodes(*state, &out);
  FillMachines(*state, &out);
  out.set_paused(state->paused.has_value());
  out.set_paused_why(state->paused.value_or(""));
  out.set_wished(state->wish.has_value());
  if (state->wish) out.set_wished_to(state->wish->to.value);
  for (const auto& [key, event] : state->events) {
    v1::OperatorEvent* shown = out.add_events();
    shown->set_time_ms(event.time_ms);
    shown->set_who(event.who);
    shown->set_what(event.what);
    shown->set_why(event.why);
  }
  out.set_tolerated(node::ClusterOperator::Tolerated(*state));
  out.set_tolerable(cluster.Tolerable(*state));
  for (std::string& line : cluster.Plan(*state)) out.add_plan(std::move(line));
  return out;
}

absl::StatusOr<v1::OperatorChangeResponse> Change(const node::ClusterOperator& cluster,
                                                  const v1::OperatorChangeRequest& request) {
  if (request.who().empty()) return absl::InvalidArgumentError("who: is empty");
  if (request.who().size() > kNoteBytesMax || request.why().size() > kNoteBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("who, why: the limit is ", kNoteBytesMax, " bytes"));
  }
  const node::Operator by{request.who(), request.why()};
  const NodeId node(request.node());
  const auto act = [&]() -> absl::StatusOr<node::Done> {
    switch (request.act()) {
      case v1::OPERATOR_ACT_PAUSE:
        return cluster.Pause(by);
      case v1::OPERATOR_ACT_RESUME:
        return cluster.Resume(by);
      case v1::OPERATOR_ACT_DRAIN:
        return cluster.Drain(node, by);
      case v1::OPERATOR_ACT_UNDRAIN:
        return cluster.Undrain(node, by);
      case v1::OPERATOR_ACT_ADD_REPLICA:
        return cluster.AddReplica(node, request.machine(), by);
      case v1::OPERATOR_ACT_REMOVE_REPLICA:
        return cluster.RemoveReplica(node, request.machine(), by);
      case v1::OPERATOR_ACT_SWITCHOVER:
        return cluster.SwitchOver(node, by);
      case v1::OPERATOR_ACT_FAILOVER:
        return cluster.FailOver(node, by);
      case v1::OPERATOR_ACT_UNSAFE_FAILOVER: {
        std::vector<node::ReplicaClaim> claims;
        for (const v1::ReplicaClaim& claim : request.claims()) {
          claims.push_back({claim.machine(), cluster::Incarnation(claim.incarnation()),
                            cluster::Epoch(claim.epoch()), claim.min_in_sync()});
        }
        return cluster.UnsafeFailOver(node, request.machine(), claims, by);
      }
      case v1::OPERATOR_ACT_REBALANCE:
        return cluster.Rebalance(by);
      default:
        return absl::InvalidArgumentError("act: is none that is known");
    }
  };
  auto done = act();
  if (!done.ok()) return done.status();
  v1::OperatorChangeResponse response;
  response.set_what(done->what);
  response.set_changed(done->changed);
  response.set_revision(done->revision);
  response.set_node(done->node.value);
  return response;
}

}  // namespace forebay::operators
