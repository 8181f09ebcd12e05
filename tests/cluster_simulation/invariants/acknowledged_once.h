// Acknowledged operations stay, once: a client's k-th operation makes its counter k, whoever
// answers; and whoever serves has counted all that was acknowledged.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster/configuration.h"
#include "tests/cluster_simulation/machine.h"

namespace forebay::cluster_simulation {

class AcknowledgedOnce {
 public:
  static constexpr const char* kName = "acknowledged operations stay, once";

  explicit AcknowledgedOnce(uint32_t machines) : machines_(machines) {}

  // Each gives "", or what is wrong.
  std::string OnAcknowledged(uint32_t machine, const Operation& operation, uint64_t count);
  std::string OnServing(uint32_t machine, cluster::NodeId node, cluster::Epoch epoch,
                        const Machine& state);

 private:
  struct Known {
    std::map<uint32_t, uint64_t> clients;
    cluster::Epoch serving;  // the latest that was looked at
  };
  std::vector<Known> machines_;
};

}  // namespace forebay::cluster_simulation
