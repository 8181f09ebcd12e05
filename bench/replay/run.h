// A run of a workload in virtual time: the daemon's own shard and ledger with the curriculum,
// engines that share their speed among attempts, and a trainer that takes its time.
//
// Not thread-safe; the same workload gives the same run on every machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/replay/workload.h"

namespace forebay::bench {

enum class Policy : uint8_t {
  kPlain,     // (max_lag + 1) x rollouts of a step may be outstanding
  kSurvival,  // the daemon's own: that over the share that is expected to survive
};
const char* Name(Policy policy);

struct StepRow {
  uint64_t step = 0;
  double begin_s = 0;    // since the start of the run
  double waiting_s = 0;  // from OpenStep to the sealed plan
  double training_s = 0;
  double sync_s = 0;
  double mean_tokens = 0;  // of the rollouts trained
  double mean_lag = 0;
  double engines_idle = 0;  // share of the engines' time without an attempt, since the last row
  double in_flight = 0;     // attempts, on average since the last row
  // Rollouts so far: that came in; of them filtered; refused or dropped for any other reason.
  uint64_t came_in = 0, filtered = 0, discarded = 0;
};

struct RunResult {
  std::vector<StepRow> rows;
  // Over all rows but the first `warm_up`.
  double waiting_share = 0;  // of the trainer's time
  double step_s = 0;         // mean
  double engines_idle = 0;
  double mean_lag = 0;
  double filtered = 0, discarded = 0;  // shares of the rollouts that came in
  // As the source has them at the end.
  double survival = 0, mean_tokens_dispatched = 0, mean_tokens_trained = 0;
  std::map<std::string, uint64_t> not_trained;  // rollouts by the reason, of the whole run
};

// Fails if a step does not come within a day of virtual time.
absl::StatusOr<RunResult> Replay(const Workload& workload, Policy policy, uint64_t steps,
                                 uint64_t warm_up);

}  // namespace forebay::bench
