// Random steps for the tests of packing: the same seed gives the same step.
//
// Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "batch/pack.h"

namespace forebay::batch {

// Skewed: half as many sequences are twice as long, down from `most`, as real answers are.
inline uint32_t RandomTokens(Prng& prng, uint32_t most) {
  const uint64_t halvings = prng.Below(8);
  return static_cast<uint32_t>(1 + prng.Below(std::max<uint64_t>(1, most >> halvings)));
}

inline std::vector<SequenceSize> RandomSequences(Prng& prng, uint32_t rollouts, uint32_t most) {
  std::vector<SequenceSize> sequences;
  uint32_t group = 0;
  for (uint32_t rollout = 0; rollout < rollouts; ++rollout) {
    if (rollout > 0 && prng.Below(4) == 0) ++group;
    const uint64_t turns = prng.Below(3) == 0 ? 1 + prng.Below(4) : 1;
    for (uint64_t turn = 0; turn < turns; ++turn) {
      sequences.push_back({RandomTokens(prng, most), rollout, group});
    }
  }
  return sequences;
}

struct RandomStep {
  std::vector<SequenceSize> sequences;
  PackSpec spec;

  explicit RandomStep(uint64_t seed) {
    Prng prng(seed);
    const auto rollouts = static_cast<uint32_t>(1 + prng.Below(prng.Below(2) == 0 ? 12 : 400));
    sequences = RandomSequences(prng, rollouts, 4096);
    spec.dp = static_cast<uint32_t>(1 + prng.Below(prng.Below(2) == 0 ? 4 : 40));
    spec.micro_batches_multiple_of = static_cast<uint32_t>(1 + prng.Below(4));
    spec.token_budget = 500 + prng.Below(9000);
    spec.pad_multiple = prng.Below(2) == 0 ? 1 : static_cast<uint32_t>(1 + prng.Below(128));
    spec.groups_whole = prng.Below(2) == 0;
    const SequenceSize& last = sequences.back();
    const uint32_t units = (spec.groups_whole ? last.group : last.rollout) + 1;
    spec.mini_batches = static_cast<uint32_t>(1 + prng.Below(std::min(units, 5u)));
    if (prng.Below(4) == 0) spec.cost = {1, 0};
    if (prng.Below(4) == 0) spec.cost = {0, 1};
  }
};

}  // namespace forebay::batch
