#include "tests/cluster_simulation/invariants/in_sync_holds_committed.h"

#include "absl/strings/str_cat.h"

namespace forebay::cluster_simulation {

std::string InSyncHoldsCommitted::OnConfiguration(uint32_t machine,
                                                  const cluster::Configuration& configuration) {
  machines_[machine].configuration = configuration;
  return Check(machine);
}

std::string InSyncHoldsCommitted::OnCommitted(uint32_t machine, replication::LogPlace last) {
  machines_[machine].committed = last;
  return Check(machine);
}

// That the last one is there says that all before it are, as entries follow only what they match.
std::string InSyncHoldsCommitted::Check(uint32_t machine) const {
  const Known& known = machines_[machine];
  if (known.committed.position == LogPosition()) return "";
  for (const cluster::NodeId node : known.configuration.in_sync) {
    const Holds holds =
        log_of_(machine, node, known.configuration.incarnation(node), known.committed);
    if (holds != Holds::kNo) continue;
    return absl::StrCat("machine ", machine, ": node ", node.value, " lacks position ",
                        known.committed.position.value, " of epoch ", known.committed.epoch.value,
                        " although it is in sync: ", cluster::Text(known.configuration));
  }
  return "";
}

}  // namespace forebay::cluster_simulation
