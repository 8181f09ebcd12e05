#include "tests/cluster_simulation/invariants/acknowledged_once.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace forebay::cluster_simulation {

std::string AcknowledgedOnce::OnAcknowledged(uint32_t machine, const Operation& operation,
                                             uint64_t count) {
  uint64_t& known = machines_[machine].clients[operation.client];
  known = std::max(known, operation.request);
  if (count == operation.request) return "";
  return absl::StrCat(
      "machine ", machine, ": operation ", operation.request, " of client ", operation.client,
      count > operation.request ? " counts twice" : " is answered although earlier ones are lost",
      ": its counter is ", count);
}

// Looked at when a reign begins to serve; what it acknowledges later it has itself.
std::string AcknowledgedOnce::OnServing(uint32_t machine, cluster::NodeId node,
                                        cluster::Epoch epoch, const Machine& state) {
  Known& known = machines_[machine];
  if (epoch <= known.serving) return "";
  known.serving = epoch;
  for (const auto& [client, request] : known.clients) {
    if (state.count(client) >= request) continue;
    return absl::StrCat("machine ", machine, ": node ", node.value, " serves in epoch ",
                        epoch.value, " without operation ", request, " of client ", client,
                        ", which was acknowledged");
  }
  return "";
}

}  // namespace forebay::cluster_simulation
