// How good plans are: balance over ranks and mini-batches, and how full micro-batches are.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "batch/pack.h"
#include "tests/unit/batch/random_step.h"

namespace forebay::batch {
namespace {

std::vector<SequenceSize> ManyRollouts(uint64_t seed, uint32_t rollouts, uint32_t most) {
  Prng prng(seed);
  std::vector<SequenceSize> sequences(rollouts);
  for (uint32_t i = 0; i < rollouts; ++i) sequences[i] = {RandomTokens(prng, most), i, i / 8};
  return sequences;
}

// What no plan can avoid: a rank that holds the costliest sequence and nothing else.
double UnavoidableImbalance(const std::vector<SequenceSize>& sequences, const PackSpec& spec) {
  const auto cost = [&](const SequenceSize& s) {
    return spec.cost.linear * s.tokens + spec.cost.quadratic * s.tokens * s.tokens;
  };
  double total = 0, most = 0;
  for (const SequenceSize& s : sequences) {
    total += cost(s);
    most = std::max(most, cost(s));
  }
  return std::max(0.0, most * spec.dp / total - 1);
}

TEST(PackQuality, BalancesCostWithinOnePercentAcrossRanks) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Prng prng(seed);
    const auto dp = static_cast<uint32_t>(2 + prng.Below(64));
    const auto sequences = ManyRollouts(seed, dp * 40, 65'536);
    PackSpec spec;
    spec.dp = dp;
    spec.token_budget = 65'536 + prng.Below(65'536);
    const Plan plan = *Pack(sequences, spec);
    const PlanQuality quality = Measure(sequences, spec, plan);
    EXPECT_LE(quality.imbalance, UnavoidableImbalance(sequences, spec) + 0.01) << "seed " << seed;
  }
}

TEST(PackQuality, NeedsFewMoreMicroBatchesThanAnyPlan) {
  double sum = 0;
  constexpr int kSeeds = 40;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Prng prng(seed);
    const auto sequences = ManyRollouts(seed, 2'000, 65'536);
    PackSpec spec;
    spec.dp = static_cast<uint32_t>(2 + prng.Below(16));
    spec.token_budget = 65'536 + prng.Below(65'536);
    const PlanQuality quality = Measure(sequences, spec, *Pack(sequences, spec));
    EXPECT_GE(quality.fill, 0.9) << "seed " << seed;
    EXPECT_LE(quality.fill, 1.0);
    sum += quality.fill;
  }
  EXPECT_GE(sum / kSeeds, 0.99);
}

TEST(PackQuality, StaysBalancedWhereMicroBatchesAreNearlyFull) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto sequences = ManyRollouts(seed, 6'400, 32'768);
    uint64_t tokens = 0;
    for (const SequenceSize& s : sequences) tokens += s.tokens;
    PackSpec spec;
    spec.dp = 64;
    spec.token_budget = tokens * 100 / 99 / (spec.dp * 16) + 1;
    const PlanQuality quality = Measure(sequences, spec, *Pack(sequences, spec));
    EXPECT_GE(quality.token_fill, 0.985) << "seed " << seed;
    EXPECT_LE(quality.imbalance, 0.01) << "seed " << seed;
  }
}

TEST(PackQuality, BalancesMiniBatches) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto sequences = ManyRollouts(seed, 256, 16'384);
    PackSpec spec;
    spec.dp = 4;
    spec.token_budget = 32'768;
    spec.mini_batches = static_cast<uint32_t>(2 + seed % 3);
    EXPECT_LE(Measure(sequences, spec, *Pack(sequences, spec)).mini_batch_imbalance, 0.01)
        << "seed " << seed;
  }
}

TEST(PackQuality, ExchangesBetweenMiniBatches) {
  // Costs 8 8 5 5 5 1, three each: longest first gives 18 and 14, one exchange 15 and 17.
  const std::vector<SequenceSize> sequences = {{800, 0, 0}, {800, 1, 1}, {500, 2, 2},
                                               {500, 3, 3}, {500, 4, 4}, {100, 5, 5}};
  PackSpec spec;
  spec.token_budget = 1000;
  spec.mini_batches = 2;
  spec.cost = {1, 0};
  EXPECT_NEAR(Measure(sequences, spec, *Pack(sequences, spec)).mini_batch_imbalance, 1.0 / 16,
              1e-9);
}

TEST(PackQuality, ExchangesWhereLongestFirstIsNotEnough) {
  // Longest first: 3 3 | 2 2 2 would be ideal, it gives {3, 2, 2} and {3, 2}.
  const std::vector<SequenceSize> sequences = {
      {300, 0, 0}, {300, 1, 1}, {200, 2, 2}, {200, 3, 3}, {200, 4, 4}};
  PackSpec spec;
  spec.dp = 2;
  spec.token_budget = 1000;
  spec.cost = {1, 0};
  EXPECT_EQ(Measure(sequences, spec, *Pack(sequences, spec)).imbalance, 0);
}

TEST(PackQuality, TakesMoreMicroBatchesWhereBudgetsForbidBalance) {
  // Three full bins a rank would put three costly ones or three cheap ones together.
  std::vector<SequenceSize> sequences;
  for (uint32_t i = 0; i < 3; ++i) sequences.push_back({1000, i, i});
  for (uint32_t i = 3; i < 33; ++i) sequences.push_back({100, i, i});
  PackSpec spec;
  spec.dp = 2;
  spec.token_budget = 1000;
  spec.cost = {0, 1};
  const Plan plan = *Pack(sequences, spec);
  EXPECT_GT(plan.mini_batches[0].micro_batches_per_rank, 3);
}

TEST(PackQuality, FillsMicroBatchesWithoutNeedForFillers) {
  // One long sequence balances many short ones; its rank still gets two micro-batches' worth.
  std::vector<SequenceSize> sequences = {{60'000, 0, 0}};
  for (uint32_t i = 1; i <= 1000; ++i) sequences.push_back({60, i, i});
  PackSpec spec;
  spec.dp = 2;
  spec.micro_batches_multiple_of = 2;
  spec.token_budget = 65'536;
  const Plan plan = *Pack(sequences, spec);
  EXPECT_EQ(plan.filler_micro_batches, 0);
}

TEST(FewestBins, KnowsTheBoundsOfMartelloAndToth) {
  EXPECT_EQ(FewestBins(std::vector<uint32_t>{10}, 10), 1);
  EXPECT_EQ(FewestBins(std::vector<uint32_t>{6, 6, 6}, 10), 3);        // halves
  EXPECT_EQ(FewestBins(std::vector<uint32_t>{5, 5, 5}, 10), 2);        // tokens
  EXPECT_EQ(FewestBins(std::vector<uint32_t>{8, 8, 4, 4, 4}, 10), 4);  // 4 fits beside no 8
  EXPECT_EQ(FewestBins(std::vector<uint32_t>{7, 6, 4, 3}, 10), 2);
}

TEST(FewestBins, IsNeverAboveWhatFirstFitNeeds) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Prng prng(seed);
    std::vector<uint32_t> sizes(1 + prng.Below(30));
    for (uint32_t& size : sizes) size = static_cast<uint32_t>(1 + prng.Below(20));
    std::sort(sizes.rbegin(), sizes.rend());
    std::vector<uint32_t> gaps;
    for (const uint32_t size : sizes) {
      auto fit = std::find_if(gaps.begin(), gaps.end(), [&](uint32_t gap) { return gap >= size; });
      if (fit == gaps.end()) fit = gaps.insert(gaps.end(), 20);
      *fit -= size;
    }
    const uint64_t bound = FewestBins(sizes, 20);
    ASSERT_LE(bound, gaps.size()) << "seed " << seed;
    ASSERT_GE(bound * 2, gaps.size()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace forebay::batch
