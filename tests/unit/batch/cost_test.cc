#include "batch/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
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

TEST(CostTable, GoesInLinesThroughItsPointsAndOnBeyondThem) {
  const Cost cost{.table = {{100, 10}, {200, 30}, {1'000, 30}, {2'000, 130}}};
  ASSERT_TRUE(CheckCost(cost).ok());
  const std::vector<uint32_t> tokens = {50, 100, 150, 200, 600, 1'000, 1'500, 2'000, 4'000};
  const std::vector<double> expected = {5, 10, 20, 30, 30, 30, 80, 130, 330};
  const auto costs = ScaledCosts(tokens, cost);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(costs[i]) / static_cast<double>(costs[1]), expected[i] / 10,
                1e-6)
        << tokens[i];
  }
}

TEST(CostTable, OfOnePointIsALine) {
  const std::vector<uint32_t> tokens = {1, 10, 1'000, 123'456};
  EXPECT_EQ(ScaledCosts(tokens, {.table = {{64, 0.5}}}), ScaledCosts(tokens, {1, 0}));
}

TEST(CostTable, StaysWithinItsBitsAndNeverFalls) {
  Prng prng(3);
  for (int round = 0; round < 200; ++round) {
    Cost cost;
    uint32_t length = 0;
    double value = std::ldexp(1.0, static_cast<int>(prng.Below(600)) - 300);
    for (uint64_t i = 0; i <= prng.Below(20); ++i) {
      length += 1 + static_cast<uint32_t>(prng.Below(1u << prng.Below(26)));
      cost.table.push_back({length, value});
      if (prng.Below(3) > 0) value *= 1 + prng.Unit() * 1000;
    }
    ASSERT_TRUE(CheckCost(cost).ok());
    std::vector<uint32_t> tokens(1'000, (1u << 31) - 1);
    for (size_t i = 0; i < 500; ++i)
      tokens[i] = 1 + static_cast<uint32_t>(prng.Below(1u << 31) / 2);
    std::sort(tokens.begin(), tokens.end());
    const auto costs = ScaledCosts(tokens, cost);
    EXPECT_LT(std::accumulate(costs.begin(), costs.end(), uint64_t{0}),
              uint64_t{1} << kTotalCostBits);
    EXPECT_TRUE(std::is_sorted(costs.begin(), costs.end()));
    EXPECT_GE(costs.front(), 1);
  }
}

TEST(CostTable, IsRefusedByTheNameOfThePoint) {
  const auto refusal = [](std::vector<CostPoint> table) {
    return std::string(CheckCost({.table = std::move(table)}).message());
  };
  EXPECT_EQ(refusal({{0, 1}}), "cost_table[0].tokens: 0, from 1 to 2147483647");
  EXPECT_EQ(refusal({{5, 1}, {5, 2}}), "cost_table[1].tokens: 5, from 6 to 2147483647");
  EXPECT_EQ(refusal({{5, 1}, {1u << 31, 2}}),
            "cost_table[1].tokens: 2147483648, from 6 to 2147483647");
  EXPECT_THAT(refusal({{5, 0}}),
              testing::HasSubstr("cost_table[0].cost: 0, must be finite, above"));
  EXPECT_THAT(refusal({{5, 3}, {6, 2}}), testing::HasSubstr("cost_table[1].cost: 2, "));
  EXPECT_THAT(refusal({{5, INFINITY}}), testing::HasSubstr("cost_table[0].cost: inf"));
  EXPECT_THAT(refusal({{5, NAN}}), testing::HasSubstr("cost_table[0].cost: nan"));
  EXPECT_EQ(refusal(std::vector<CostPoint>(1'025, {1, 1})),
            "cost_table: 1025 points, at most 1024");
}

}  // namespace
}  // namespace forebay::batch
