// From groups to a plan: what the seal of a step fixes.
//
// Pure functions over a Step; not thread-safe.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "ledger/step.h"

namespace forebay::ledger {

struct PackedStep {
  std::vector<PlannedMiniBatch> mini_batches;
  uint64_t filler_micro_batches = 0;
};

// Packs what the step holds by `spec`, with each mini-batch's totals. The step is not changed.
absl::StatusOr<PackedStep> PackStep(const Step& step, const StepSpec& spec);

// REINFORCE++ (2501.03262): the shards report r - mean of the group; the constants are the batch's,
// over all such rollouts: (a - mean) / (standard deviation + 1e-6), population, summed in the order
// of the rollouts.
void NormalizeAdvantages(Step& step);
// Sequences without an advantage of their own take their rollout's.
void InheritAdvantages(Step& step);

// Fills totals, rollouts_by_lag, reward_mean and plan_hash from the rest.
void Summarize(Step& step);

}  // namespace forebay::ledger
