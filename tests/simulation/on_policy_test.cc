// Runs with max_lag 0: engines and trainers take turns, and nothing may be left over to train
// later.
#include <gtest/gtest.h>

#include "tests/simulation/simulation.h"

namespace forebay::simulation {
namespace {

HistoryOptions OnPolicy() {
  HistoryOptions options;
  options.seed = 7;
  options.events = 4'000;
  codec::SourceSettings source;
  source.name = "math";
  source.group_size = source.attempts_per_task = source.complete_at = 4;
  source.max_lag = 0;
  options.sources = {source};
  options.tasks_per_source = 200;
  options.straggler = options.tool_wait = options.late_weights = 0;
  options.refetch = 0;
  return options;
}

std::string Text(const HistoryResult& result) {
  return result.violation ? result.violation->invariant + ": " + result.violation->what : "";
}

TEST(OnPolicy, OneActorWithADeterministicPolicyGivesTheSameStepsWhateverTheTiming) {
  HistoryOptions options = OnPolicy();
  options.actors = 1;
  options.slots = 1;
  options.attempt_ms = 20;
  options.groups_per_step = 4;
  options.deterministic_policy = true;
  options.sources[0].keep_equal_rewards = true;
  const HistoryResult first = RunHistory(options);
  ASSERT_EQ(Text(first), "");
  ASSERT_GE(first.plan_hashes.size(), 8u);
  for (uint64_t timing = 1; timing <= 10; ++timing) {
    options.timing = timing;
    options.delay_ms_max = 1 + 10 * timing;
    const HistoryResult other = RunHistory(options);
    ASSERT_EQ(Text(other), "");
    const size_t both = std::min(first.plan_hashes.size(), other.plan_hashes.size());
    ASSERT_GE(both, 4u);
    for (size_t i = 0; i < both; ++i)
      ASSERT_EQ(first.plan_hashes[i], other.plan_hashes[i]) << "step " << i + 1;
  }
}

TEST(OnPolicy, AnotherPolicyGivesOtherSteps) {
  HistoryOptions options = OnPolicy();
  options.actors = 1;
  options.slots = 1;
  options.attempt_ms = 20;
  options.groups_per_step = 4;
  const HistoryResult first = RunHistory(options);
  options.timing = 1;
  const HistoryResult other = RunHistory(options);
  ASSERT_FALSE(first.plan_hashes.empty());
  ASSERT_FALSE(other.plan_hashes.empty());
  EXPECT_NE(first.plan_hashes[0], other.plan_hashes[0]);
}

class Colocated : public testing::TestWithParam<std::tuple<uint32_t, uint32_t, uint32_t>> {};

TEST_P(Colocated, DoesNotDeadlockWithFourOfFiveGroupsFiltered) {
  HistoryOptions options = OnPolicy();
  options.shards = std::get<0>(GetParam());
  options.groups_per_step = std::get<1>(GetParam());
  options.open_ahead = std::get<2>(GetParam());
  options.equal_rewards = 0.8;
  options.actors = 16;
  options.slots = 8;
  options.attempt_ms = 100;
  for (uint64_t timing = 0; timing < 3; ++timing) {
    options.timing = timing;
    const HistoryResult result = RunHistory(options);
    ASSERT_EQ(Text(result), "") << "timing " << timing;
    EXPECT_GE(result.stats.steps, 2u);
  }
}

// 1,024 groups are all that admission lets in before a trainer says how many it takes.
INSTANTIATE_TEST_SUITE_P(, Colocated,
                         testing::Combine(testing::Values(1, 4), testing::Values(1, 3, 16, 100),
                                          testing::Values(1, 2)));

}  // namespace
}  // namespace forebay::simulation
