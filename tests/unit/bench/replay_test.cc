// That a replay follows the rules of its workload, and is the same each time.
#include <gtest/gtest.h>

#include "bench/replay/run.h"
#include "bench/replay/workload.h"

namespace forebay::bench {
namespace {

Workload Small() {
  Workload workload;
  workload.engines = 4;
  workload.slots = 32;
  workload.rollouts = 64;
  workload.group_size = 8;
  workload.mean_tokens = 500;
  return workload;
}

RunResult Replayed(const Workload& workload, Policy policy) {
  auto result = Replay(workload, policy, 12, 2);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : RunResult{};
}

TEST(Workload, LengthsHaveTheirMeanAndGrow) {
  Workload workload;
  workload.context_tokens = 10'000'000;
  workload.growth = 2;
  double before = 0, after = 0;
  constexpr uint64_t kAttempts = 200'000;
  for (uint64_t i = 0; i < kAttempts; ++i) {
    before += TokensOf(workload, i, 0) / double{kAttempts};
    after += TokensOf(workload, i, workload.growth_steps) / double{kAttempts};
  }
  EXPECT_NEAR(before / workload.mean_tokens, 1, 0.03);
  EXPECT_NEAR(after / before, 2, 0.01);
}

TEST(Workload, AFullEngineMakesAlmostWhatItCan) {
  const Workload workload;
  EXPECT_EQ(TokensPerSecond(workload, 0), workload.tokens_per_s);
  const double all = 1000 * TokensPerSecond(workload, 1000);
  EXPECT_NEAR(all / (workload.tokens_per_s * workload.half_at), 1, 0.01);
  EXPECT_GT(WaitingBound(workload, 0.5), WaitingBound(workload, 1));
}

TEST(Replay, IsTheSameEachTime) {
  const RunResult first = Replayed(Small(), Policy::kSurvival);
  const RunResult again = Replayed(Small(), Policy::kSurvival);
  ASSERT_EQ(first.rows.size(), 12u);
  EXPECT_EQ(first.step_s, again.step_s);
  EXPECT_EQ(first.rows.back().came_in, again.rows.back().came_in);
  Workload other = Small();
  other.seed = 2;
  EXPECT_NE(Replayed(other, Policy::kSurvival).step_s, first.step_s);
}

TEST(Replay, TimesAddUpAndLagStaysWithinItsLimit) {
  const RunResult run = Replayed(Small(), Policy::kSurvival);
  for (size_t i = 1; i < run.rows.size(); ++i) {
    const StepRow& row = run.rows[i - 1];
    EXPECT_NEAR(row.begin_s + row.waiting_s + row.training_s + row.sync_s, run.rows[i].begin_s,
                0.1);
    EXPECT_LE(row.mean_lag, 1);
    EXPECT_LE(row.in_flight, 2 * 64 + 8);
  }
  EXPECT_GT(run.mean_lag, 0);
}

TEST(Replay, OnlyWhatIsFilteredMakesThePoliciesDiffer) {
  Workload workload = Small();
  EXPECT_EQ(Replayed(workload, Policy::kPlain).filtered, 0);
  workload.filter = true;
  const RunResult plain = Replayed(workload, Policy::kPlain);
  const RunResult survival = Replayed(workload, Policy::kSurvival);
  EXPECT_GT(plain.filtered, 0.1);
  EXPECT_GT(survival.rows.back().in_flight, plain.rows.back().in_flight);
}

TEST(Replay, RefusesWhatCannotBeRun) {
  EXPECT_TRUE(absl::IsInvalidArgument(Replay(Small(), Policy::kPlain, 5, 5).status()));
  Workload workload = Small();
  workload.engines = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(Replay(workload, Policy::kPlain, 5, 0).status()));
}

}  // namespace
}  // namespace forebay::bench
