#include "batch/cost.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/prng.h"

namespace forebay::batch {
namespace {

TEST(Cost, KeepsRatiosOfLinearAndQuadratic) {
  const std::vector<uint32_t> tokens = {1'000, 24'576, 65'536};
  const auto costs = ScaledCosts(tokens, Cost{});
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double expected = (24'576.0 * tokens[i] + 1.0 * tokens[i] * tokens[i]) /
                            (24'576.0 * tokens[0] + 1.0 * tokens[0] * tokens[0]);
    EXPECT_NEAR(static_cast<double>(costs[i]) / static_cast<double>(costs[0]), expected,
                expected * 1e-6);
  }
}

TEST(Cost, DependsOnlyOnTheRatioOfPowersOfTwo) {
  const std::vector<uint32_t> tokens = {3, 700, 65'000};
  EXPECT_EQ(ScaledCosts(tokens, {24'576, 1}), ScaledCosts(tokens, {24'576 * 8, 8}));
  EXPECT_EQ(ScaledCosts(tokens, {24'576, 1}), ScaledCosts(tokens, {24'576 / 64.0, 1 / 64.0}));
}

TEST(Cost, StaysWithinItsBitsForExtremeLengthsAndCoefficients) {
  const Cost extremes[] = {{1, 0}, {0, 1}, {1e300, 1e300}, {1e-300, 1}, {5e-324, 0}, {1, 1e-300}};
  for (const Cost& cost : extremes) {
    ASSERT_TRUE(CheckCost(cost).ok());
    std::vector<uint32_t> tokens(100'000, (1u << 31) - 1);
    tokens.back() = 1;
    const auto costs = ScaledCosts(tokens, cost);
    EXPECT_LT(std::accumulate(costs.begin(), costs.end(), uint64_t{0}),
              uint64_t{1} << kTotalCostBits);
    EXPECT_EQ(costs.front(), costs[1]);
    EXPECT_GE(costs.front(), costs.back());
    EXPECT_GE(costs.back(), 1);
  }
}

TEST(Cost, NeverFallsWithLength) {
  Prng prng(1);
  std::vector<uint32_t> tokens(1000);
  uint32_t length = 1;
  for (uint32_t& n : tokens) n = length += static_cast<uint32_t>(prng.Below(100));
  const auto costs = ScaledCosts(tokens, Cost{});
  EXPECT_TRUE(std::is_sorted(costs.begin(), costs.end()));
}

}  // namespace
}  // namespace forebay::batch
