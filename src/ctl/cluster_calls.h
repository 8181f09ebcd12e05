// How the commands that look after a cluster reach it: any node that answers, or the coordinator
// itself when `--etcd` names it.
//
// One thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ctl/command.h"
#include "forebay/v1/operator.pb.h"

namespace forebay::ctl {

absl::StatusOr<v1::OperatorState> GetClusterState(const Context& context);
// With who asks.
absl::StatusOr<v1::OperatorChangeResponse> ChangeCluster(const Context& context,
                                                         v1::OperatorChangeRequest request);
// Asks a node at its own address, which may take `timeout`.
template <class Response, class Request>
absl::StatusOr<Response> AskNode(const Context& context, const std::string& address,
                                 std::string_view method, const Request& request,
                                 absl::Duration timeout) {
  auto client = context.connect(address);
  if (!client.ok()) return client.status();
  return AskService<Response>(client->get(), absl::StrCat("OperatorService/", std::string(method)),
                              request, timeout);
}
// Each node that is there, by its own word, or why it does not answer; by id.
struct NodeReport {
  uint32_t node = 0;
  std::string address;
  absl::StatusOr<v1::NodeState> state;
};
std::vector<NodeReport> AskNodes(const Context& context, const v1::OperatorState& state);
// Of one machine's replica on one node; null if the node did not say.
const v1::ReplicaState* ReplicaOf(const std::vector<NodeReport>& reports, uint32_t node,
                                  const std::string& machine);

// {"state": ..., "nodes": [...]}
std::string ClusterJson(const v1::OperatorState& state, const std::vector<NodeReport>& reports);
// "1 2 3", "-" if there are none.
template <class Nodes>
std::string NodeList(const Nodes& nodes) {
  std::string text;
  for (const uint32_t node : nodes) absl::StrAppend(&text, text.empty() ? "" : " ", node);
  return text.empty() ? "-" : text;
}

// Says what a change was, as JSON or as a line.
void ShowChange(const Context& context, const v1::OperatorChangeResponse& response);

}  // namespace forebay::ctl
