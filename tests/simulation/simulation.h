// A history of one node from its seed: actors, trainers, an operator and faults in virtual time,
// under the eyes of invariants.
//
// Not thread-safe; the same options give the same history on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/invariants/invariant.h"
#include "tests/simulation/options.h"
#include "tests/simulation/stats.h"

namespace forebay::simulation {

struct HistoryResult {
  Stats stats;
  std::optional<Violation> violation;
  uint64_t event = 0;                    // of the violation
  std::vector<uint64_t> plan_hashes;     // of the steps, in the order of their commits
  std::vector<std::string> last_events;  // facts of the events from `trace_from` on
};

// The history ends at the first violation. Facts are written down from event `trace_from` on.
HistoryResult RunHistory(const HistoryOptions& options, uint64_t trace_from = UINT64_MAX);

}  // namespace forebay::simulation
