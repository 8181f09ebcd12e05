// What the parts of a history share.
//
// Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cluster_simulation/coordinator.h"
#include "tests/cluster_simulation/invariants/checker.h"
#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/options.h"
#include "tests/cluster_simulation/stats.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"

namespace forebay::cluster_simulation {

class Node;

struct World {
  const HistoryOptions& options;
  simulation::EventQueue& queue;
  simulation::Dice& dice;
  Stats& stats;
  Network& network;
  Coordinator& coordinator;
  Checker& checker;
  std::vector<std::unique_ptr<Node>>& nodes;  // the one with number n is at n - 1
  // Writes a fact down for the report, if anybody will read it.
  std::function<void(const std::string&)> note;
  bool tracing = false;
};

}  // namespace forebay::cluster_simulation
