#include "tests/cluster_simulation/invariants/checker.h"

#include "absl/strings/str_cat.h"

namespace forebay::cluster_simulation {

void Checker::OnStopped(uint32_t machine, cluster::NodeId node, const std::string& why) {
  Fail(absl::StrCat(OneHistory::kName, ", as a replica sees"),
       absl::StrCat("node ", node.value, " has stopped its replica of machine ", machine, ": ",
                    why));
}

}  // namespace forebay::cluster_simulation
