// Configurations of replicas on nodes 1, 2 and 3, all under incarnation 1.
//
// Pure functions.
#pragma once

#include <vector>

#include "cluster/configuration.h"

namespace forebay::cluster {

inline Configuration Make(uint64_t epoch, uint32_t primary, std::vector<uint32_t> in_sync,
                          std::vector<uint32_t> leaving = {}) {
  Configuration c;
  c.epoch = Epoch(epoch);
  c.primary = NodeId(primary);
  for (const uint32_t node : in_sync) c.in_sync.emplace_back(node);
  for (const uint32_t node : leaving) c.leaving.emplace_back(node);
  for (uint32_t node = 1; node <= 3; ++node) c.incarnations[NodeId(node)] = Incarnation(1);
  c.min_in_sync = 2;
  return c;
}

}  // namespace forebay::cluster
