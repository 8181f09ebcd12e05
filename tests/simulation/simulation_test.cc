// What the simulator promises: a seed is a history, every kind of fault happens, and a run that is
// stuck is found.
#include "tests/simulation/simulation.h"

#include <gtest/gtest.h>

#include "tests/simulation/invariants/committed_entries_stay.h"
#include "tests/simulation/invariants/progress.h"

namespace forebay::simulation {
namespace {

std::string Text(const std::optional<Violation>& violation) {
  return violation ? violation->invariant + ": " + violation->what : "";
}

void IsTheSameAgain(const HistoryOptions& options) {
  const HistoryResult first = RunHistory(options, 0);
  const HistoryResult second = RunHistory(options, 0);
  EXPECT_EQ(Text(first.violation), "");
  EXPECT_GE(first.stats.events, options.events);
  EXPECT_EQ(first.stats.Text(), second.stats.Text());
  EXPECT_EQ(first.plan_hashes, second.plan_hashes);
  EXPECT_EQ(first.last_events, second.last_events);
}

TEST(Simulation, TheSameSeedIsTheSameHistory) {
  HistoryOptions options = DrawHistory(42);
  options.events = 5'000;
  IsTheSameAgain(options);
}

TEST(Simulation, TheSameSeedIsTheSameHistoryOnDisksWithTrouble) {
  HistoryOptions options;
  uint64_t seed = 0;
  do {
    options = DrawHistory(++seed);
  } while (!options.store || options.disk_trouble == 0 || options.restart_one_in == 0);
  options.flip = 0;
  options.events = 5'000;
  IsTheSameAgain(options);
}

TEST(Simulation, EveryKindOfFaultHappens) {
  constexpr uint64_t kHistoriesMax = 600;  // some kinds are rare
  Stats stats;
  const auto missing = [&stats] {
    std::string names;
    for (size_t i = 0; i < kFaults; ++i) {
      if (stats.faults[i] == 0) names += std::string(Name(static_cast<Fault>(i))) + ", ";
    }
    if (stats.evals == 0) names += "evaluations, ";
    if (stats.unlinked == 0) names += "unlinked segments, ";
    return names;
  };
  for (uint64_t seed = 1; seed <= kHistoriesMax && (seed <= 150 || !missing().empty()); ++seed) {
    HistoryOptions options = DrawHistory(seed);
    options.events = 5'000;
    const HistoryResult result = RunHistory(options);
    ASSERT_EQ(Text(result.violation), "") << "seed " << seed;
    stats.Add(result.stats);
  }
  EXPECT_EQ(missing(), "");
}

TEST(Simulation, ARunOfManyActorsRanksAndShardsTakesItsSteps) {
  HistoryOptions options = ScaleOptions(
      {.actors = 500, .ranks = 50, .shards = 16, .rollouts_per_step = 1'600, .steps = 3});
  const HistoryResult result = RunHistory(options);
  EXPECT_EQ(Text(result.violation), "");
  EXPECT_EQ(result.stats.steps, 3u);
  EXPECT_GT(result.stats.rollouts, 3 * 1'600u);
  EXPECT_GE(result.stats.scans, 3u);
}

TEST(Simulation, ARunWithoutActorsIsFoundToBeStuck) {
  HistoryOptions options = DrawHistory(3);
  options.actors = 0;
  options.events = 1'000;
  const HistoryResult result = RunHistory(options);
  ASSERT_TRUE(result.violation);
  EXPECT_EQ(result.violation->invariant, Progress::kName);
}

TEST(Simulation, ARunInWhichMuchHappensButNoStepIsFoundToBeStuck) {
  HistoryOptions options = DrawHistory(3);
  options.equal_rewards = 1;
  for (auto& source : options.sources) source.keep_equal_rewards = false;
  options.events = 1'000;
  const HistoryResult result = RunHistory(options);
  ASSERT_TRUE(result.violation);
  EXPECT_EQ(result.violation->invariant, Progress::kName);
  EXPECT_GT(result.stats.events, 100 * options.events);
}

TEST(Simulation, ALogThatSaysTooEarlyThatItIsSyncedIsFound) {
  HistoryResult result;
  for (uint64_t seed = 1; !result.violation && seed <= 100; ++seed) {
    HistoryOptions options = DrawHistory(seed);
    options.commit_unsynced = true;
    result = RunHistory(options);
  }
  ASSERT_TRUE(result.violation);
  EXPECT_EQ(result.violation->invariant, CommittedEntriesStay::kName);
}

TEST(Simulation, AViolationIsReplayedToTheEvent) {
  HistoryOptions options;
  HistoryResult first;
  for (uint64_t seed = 1; !first.violation; ++seed) {
    options = DrawHistory(seed);
    options.mutations.accept_duplicates = true;
    first = RunHistory(options);
  }
  const HistoryResult second = RunHistory(options, first.event);
  EXPECT_EQ(Text(first.violation), Text(second.violation));
  EXPECT_EQ(first.event, second.event);
  EXPECT_FALSE(second.last_events.empty());
}

}  // namespace
}  // namespace forebay::simulation
