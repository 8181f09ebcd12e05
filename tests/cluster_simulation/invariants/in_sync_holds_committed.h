// 1. Every committed entry is in the log or snapshot of every replica in the coordinator's current
// in-sync set; checked at each change of the set, and at each commit.
//
// Not thread-safe. A member whose log was lost or cut is another incarnation, hence not this
// member; the set says so only later.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cluster/configuration.h"
#include "replication/messages.h"

namespace forebay::cluster_simulation {

class InSyncHoldsCommitted {
 public:
  static constexpr const char* kName = "1 in-sync replicas hold what is committed";
  enum class Holds : uint8_t { kYes, kNo, kOtherIncarnation };
  // Whether the log of that incarnation holds the entry, on disk and in memory.
  using LogOf = std::function<Holds(uint32_t machine, cluster::NodeId, cluster::Incarnation,
                                    replication::LogPlace)>;

  InSyncHoldsCommitted(uint32_t machines, LogOf log_of)
      : log_of_(std::move(log_of)), machines_(machines) {}

  // Each gives "", or what is wrong.
  std::string OnConfiguration(uint32_t machine, const cluster::Configuration& configuration);
  std::string OnCommitted(uint32_t machine, replication::LogPlace last);

 private:
  struct Known {
    cluster::Configuration configuration;
    replication::LogPlace committed;
  };
  std::string Check(uint32_t machine) const;

  const LogOf log_of_;
  std::vector<Known> machines_;
};

}  // namespace forebay::cluster_simulation
