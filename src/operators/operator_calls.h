// GetState and Change of OperatorService over the coordinator: for a node's service, and for
// buffer-ctl when no node is up.
//
// Thread-safe. Calls block, for the timeout at most.
#pragma once

#include "absl/status/statusor.h"
#include "forebay/v1/operator.pb.h"
#include "node/cluster_operator.h"

namespace forebay::operators {

absl::StatusOr<v1::OperatorState> GetState(const node::ClusterOperator& cluster,
                                           const std::string& name);
absl::StatusOr<v1::OperatorChangeResponse> Change(const node::ClusterOperator& cluster,
                                                  const v1::OperatorChangeRequest& request);

}  // namespace forebay::operators
