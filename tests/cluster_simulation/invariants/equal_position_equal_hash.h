// 7. Equal log position, equal state hash.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "cluster/configuration.h"

namespace forebay::cluster_simulation {

class EqualPositionEqualHash {
 public:
  static constexpr const char* kName = "7 equal position, equal state hash";

  explicit EqualPositionEqualHash(uint32_t machines) : machines_(machines) {}

  // Gives "", or what is wrong.
  std::string OnState(uint32_t machine, cluster::NodeId node, LogPosition position, uint64_t hash);

 private:
  std::vector<std::map<LogPosition, uint64_t>> machines_;
};

}  // namespace forebay::cluster_simulation
