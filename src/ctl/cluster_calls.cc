#include "ctl/cluster_calls.h"

#include "absl/strings/str_split.h"
#include "etcd/coordinator.h"
#include "operators/operator_calls.h"

namespace forebay::ctl {
namespace {

// What one node may take that others are asked beside.
constexpr absl::Duration kNodeTimeout = absl::Seconds(4);

// The coordinator itself, for one call.
absl::StatusOr<std::unique_ptr<node::Coordinator>> OpenEtcd(const Context& context) {
  etcd::Options options;
  options.endpoints = absl::StrSplit(context.etcd, ',', absl::SkipEmpty());
  auto coordinator = etcd::Coordinator::Open(options);
  if (coordinator.ok()) return *std::move(coordinator);
  return absl::InvalidArgumentError(
      absl::StrCat("--etcd: ", std::string(coordinator.status().message())));
}

// Of the nodes whose addresses were given the first that answers.
template <class Response, class Request>
absl::StatusOr<Response> AskAny(const Context& context, const std::string& method,
                                const Request& request) {
  const std::vector<std::string> addresses =
      absl::StrSplit(context.addresses, ',', absl::SkipEmpty());
  absl::StatusOr<Response> response = absl::UnavailableError("no address is given");
  for (size_t i = 0; i < addresses.size(); ++i) {
    const bool last = i + 1 == addresses.size();
    response = AskNode<Response>(context, addresses[i], method, request,
                                 last ? context.timeout : std::min(context.timeout, kNodeTimeout));
    // Acts are such that asking another node again changes nothing more.
    if (!absl::IsUnavailable(response.status()) && !absl::IsDeadlineExceeded(response.status())) {
      break;
    }
  }
  return response;
}

absl::Status Translate(const Context& context, const absl::Status& status) {
  if (!context.etcd.empty() && absl::IsUnavailable(status)) {
    return absl::UnavailableError(
        absl::StrCat("etcd at ", context.etcd, ": ", std::string(status.message())));
  }
  if (!absl::IsUnimplemented(status)) return status;
  return absl::FailedPreconditionError(
      "the daemon is no node of a cluster (its cluster.etcd is not set), or is of an older "
      "version");
}

}  // namespace

absl::StatusOr<v1::OperatorState> GetClusterState(const Context& context) {
  if (!context.etcd.empty()) {
    auto coordinator = OpenEtcd(context);
    if (!coordinator.ok()) return coordinator.status();
    const node::ClusterOperator cluster(coordinator->get(), context.cluster, 0, context.timeout);
    auto state = operators::GetState(cluster, context.cluster);
    if (!state.ok()) return Translate(context, state.status());
    if (state->nodes_size() == 0) {
      return absl::NotFoundError(absl::StrCat("etcd knows no cluster '", context.cluster,
                                              "': name another with --cluster"));
    }
    return state;
  }
  auto state = AskAny<v1::OperatorState>(context, "GetState", v1::GetOperatorStateRequest());
  return state.ok() ? state : Translate(context, state.status());
}

absl::StatusOr<v1::OperatorChangeResponse> ChangeCluster(const Context& context,
                                                         v1::OperatorChangeRequest request) {
  request.set_who(Who());
  if (!context.etcd.empty()) {
    auto coordinator = OpenEtcd(context);
    if (!coordinator.ok()) return coordinator.status();
    const node::ClusterOperator cluster(coordinator->get(), context.cluster, 0, context.timeout);
    auto response = operators::Change(cluster, request);
    return response.ok() ? response : Translate(context, response.status());
  }
  auto response = AskAny<v1::OperatorChangeResponse>(context, "Change", request);
  return response.ok() ? response : Translate(context, response.status());
}

std::vector<NodeReport> AskNodes(const Context& context, const v1::OperatorState& state) {
  std::vector<NodeReport> reports;
  for (const v1::OperatorNode& node : state.nodes()) {
    NodeReport report{node.id(), node.address(),
                      absl::UnavailableError("its process is not there")};
    if (node.present()) {
      report.state =
          AskNode<v1::NodeState>(context, node.address(), "GetNode", v1::GetNodeRequest(),
                                 std::min(context.timeout, kNodeTimeout));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

const v1::ReplicaState* ReplicaOf(const std::vector<NodeReport>& reports, uint32_t node,
                                  const std::string& machine) {
  for (const NodeReport& report : reports) {
    if (report.node != node || !report.state.ok()) continue;
    for (const v1::ReplicaState& replica : report.state->replicas()) {
      if (replica.machine() == machine) return &replica;
    }
  }
  return nullptr;
}

std::string ClusterJson(const v1::OperatorState& state, const std::vector<NodeReport>& reports) {
  std::string text = absl::StrCat("{\"state\": ", ToJson(state), ",\n\"nodes\": [");
  const char* separator = "";
  for (const NodeReport& report : reports) {
    if (!report.state.ok()) continue;
    absl::StrAppend(&text, separator, ToJson(*report.state));
    separator = ",\n";
  }
  return text + "]}";
}

void ShowChange(const Context& context, const v1::OperatorChangeResponse& response) {
  *context.out << (context.json ? ToJson(response) : response.what()) << "\n";
}

}  // namespace forebay::ctl
