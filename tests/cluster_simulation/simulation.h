// A history of a cluster from its seed: nodes with replicas of a few machines, clients, a
// coordinator, and faults in virtual time, under the eyes of invariants; then everything heals, and
// it must make progress.
//
// Not thread-safe; the same options give the same history on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/cluster_simulation/invariants/checker.h"
#include "tests/cluster_simulation/options.h"
#include "tests/cluster_simulation/stats.h"

namespace forebay::cluster_simulation {

struct HistoryResult {
  Stats stats;
  std::optional<Violation> violation;
  uint64_t at_ms = 0;              // of the violation
  uint64_t hash = 0;               // of everything that was committed and acknowledged
  std::vector<std::string> facts;  // the last ones, if they were asked for
};

// The history ends at the first violation.
HistoryResult RunHistory(const HistoryOptions& options, bool with_facts = false);

}  // namespace forebay::cluster_simulation
