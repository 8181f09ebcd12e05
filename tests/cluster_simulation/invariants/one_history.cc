#include "tests/cluster_simulation/invariants/one_history.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace forebay::cluster_simulation {

std::string OneHistory::OnConfiguration(uint32_t machine,
                                        const cluster::Configuration& configuration) {
  Known& known = machines_[machine];
  if (configuration.epoch < known.epoch)
    return absl::StrCat("machine ", machine, ": epoch ", configuration.epoch.value, " after ",
                        known.epoch.value);
  known.epoch = configuration.epoch;
  return "";
}

std::string OneHistory::OnReign(uint32_t machine, cluster::NodeId node, cluster::Epoch epoch,
                                const replication::EntryLog& log) {
  Known& known = machines_[machine];
  if (!known.reigns.insert(epoch).second)
    return absl::StrCat("machine ", machine, ": node ", node.value,
                        " begins a second reign in epoch ", epoch.value);
  if (known.entries.empty()) return "";
  // Who begins a reign that a later one has ended already, can commit nothing; it need not hold
  // what the later one has committed.
  if (epoch < *known.reigns.rbegin()) return "";
  const LogPosition last(known.entries.size());
  if (log.base().position >= last || log.Has({known.entries.back().epoch, last})) return "";
  return absl::StrCat("machine ", machine, ": node ", node.value, " reigns in epoch ", epoch.value,
                      " without the committed position ", last.value);
}

std::string OneHistory::OnCommitted(uint32_t machine, cluster::NodeId node, LogPosition position,
                                    const replication::Entry& entry) {
  std::vector<replication::Entry>& entries = machines_[machine].entries;
  if (position.value > entries.size() + 1)
    return absl::StrCat("machine ", machine, ": node ", node.value, " has position ",
                        position.value, " committed before ", entries.size() + 1);
  if (position.value == entries.size() + 1) {
    entries.push_back(entry);
    return "";
  }
  if (entries[position.value - 1] == entry) return "";
  return absl::StrCat("machine ", machine, ": node ", node.value,
                      " has another entry committed at ", position.value, ", of epoch ",
                      entry.epoch.value, " and not ", entries[position.value - 1].epoch.value);
}

uint64_t OneHistory::Hash(uint32_t machine) const {
  uint64_t hash = 0;
  for (const replication::Entry& entry : machines_[machine].entries)
    hash = Hash64(entry.command, HashCombine(hash, entry.epoch.value));
  return hash;
}

}  // namespace forebay::cluster_simulation
