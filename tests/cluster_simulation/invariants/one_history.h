// 2. No position has two different committed entries; every later primary holds every committed
// entry; epochs only rise.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cluster/configuration.h"
#include "replication/entry_log.h"

namespace forebay::cluster_simulation {

class OneHistory {
 public:
  static constexpr const char* kName = "2 one history";

  explicit OneHistory(uint32_t machines) : machines_(machines) {}

  // Each gives "", or what is wrong.
  std::string OnConfiguration(uint32_t machine, const cluster::Configuration& configuration);
  std::string OnReign(uint32_t machine, cluster::NodeId node, cluster::Epoch epoch,
                      const replication::EntryLog& log);
  // By each replica, each position in its order.
  std::string OnCommitted(uint32_t machine, cluster::NodeId node, LogPosition position,
                          const replication::Entry& entry);

  LogPosition committed(uint32_t machine) const {
    return LogPosition(machines_[machine].entries.size());
  }
  // Of everything that was committed.
  uint64_t Hash(uint32_t machine) const;
  size_t reigns(uint32_t machine) const { return machines_[machine].reigns.size(); }

 private:
  struct Known {
    std::vector<replication::Entry> entries;
    cluster::Epoch epoch;
    std::set<cluster::Epoch> reigns;
  };
  std::vector<Known> machines_;
};

}  // namespace forebay::cluster_simulation
