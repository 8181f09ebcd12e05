// What a sequence costs a rank, in integers, so that a plan is the same on every machine.
//
// Pure functions; safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace forebay::batch {

// cost(n) = linear * n + quadratic * n^2 for a sequence of n tokens: the matrix multiplications
// and the attention of one layer (the defaults are verl's, hidden size 4096). Only the ratio
// counts.
struct Cost {
  double linear = 24576;
  double quadratic = 1;
};

// The sum of all scaled costs is below 2^kTotalCostBits, whatever the lengths.
inline constexpr int kTotalCostBits = 40;

// Refuses coefficients that are negative, not finite, or both zero.
absl::Status CheckCost(const Cost& cost);

// The cost of each length, all scaled by one power of two; at least 1. The caller has checked
// `cost`, lengths below 2^31 and a count of at most 2^24.
std::vector<uint64_t> ScaledCosts(absl::Span<const uint32_t> tokens, const Cost& cost);

}  // namespace forebay::batch
