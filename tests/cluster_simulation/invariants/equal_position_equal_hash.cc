#include "tests/cluster_simulation/invariants/equal_position_equal_hash.h"

#include "absl/strings/str_cat.h"

namespace forebay::cluster_simulation {

std::string EqualPositionEqualHash::OnState(uint32_t machine, cluster::NodeId node,
                                            LogPosition position, uint64_t hash) {
  const auto [known, first] = machines_[machine].emplace(position, hash);
  if (first || known->second == hash) return "";
  return absl::StrCat("machine ", machine, ": node ", node.value, " has another state at position ",
                      position.value);
}

}  // namespace forebay::cluster_simulation
