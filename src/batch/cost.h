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
//
// A table takes the place of that: what sequences of some lengths were measured to cost, in any
// unit. Between two points the cost is on the line between them, before the first on the line from
// nothing, after the last it goes on as between the last two.
struct CostPoint {
  uint32_t tokens = 0;
  double cost = 0;
  bool operator==(const CostPoint&) const = default;
  template <class A>
  void Fields(A& a) {
    a(tokens, cost);
  }
};
inline constexpr size_t kCostPointsMax = 1024;

struct Cost {
  double linear = 24576;
  double quadratic = 1;
  std::vector<CostPoint> table;
};

// The sum of all scaled costs is below 2^kTotalCostBits, whatever the lengths.
inline constexpr int kTotalCostBits = 40;

// Refuses coefficients that are negative, not finite, or both zero; a table whose lengths do not
// rise, whose costs fall, are not finite or not above 0, or that has more than kCostPointsMax
// points.
absl::Status CheckCost(const Cost& cost);

// The cost of each length, all scaled by one power of two; at least 1. The caller has checked
// `cost`, lengths below 2^31 and a count of at most 2^24.
std::vector<uint64_t> ScaledCosts(absl::Span<const uint32_t> tokens, const Cost& cost);

}  // namespace forebay::batch
