// What the cluster's simulator promises: a seed is a history, every kind of fault happens, and a
// run that is stuck is found.
#include "tests/cluster_simulation/simulation.h"

#include <gtest/gtest.h>

#include "tests/cluster_simulation/invariants/progress.h"

namespace forebay::cluster_simulation {
namespace {

std::string Text(const std::optional<Violation>& violation) {
  return violation ? violation->invariant + ": " + violation->what : "";
}

TEST(ClusterSimulation, TheSameSeedIsTheSameHistory) {
  for (uint64_t seed = 42; seed < 47; ++seed) {
    const HistoryResult first = RunHistory(DrawHistory(seed), /*with_facts=*/true);
    const HistoryResult second = RunHistory(DrawHistory(seed), /*with_facts=*/true);
    EXPECT_EQ(Text(first.violation), "");
    EXPECT_GT(first.stats.acknowledged, 0u);
    EXPECT_EQ(first.hash, second.hash);
    EXPECT_EQ(first.stats.Text(), second.stats.Text());
    EXPECT_EQ(first.facts, second.facts);
  }
}

TEST(ClusterSimulation, EveryKindOfFaultHappensAndBreaksNothing) {
  Stats stats;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const HistoryResult result = RunHistory(DrawHistory(seed));
    ASSERT_EQ(Text(result.violation), "") << "seed " << seed;
    stats.Add(result.stats);
  }
  for (size_t i = 0; i < kFaults; ++i)
    EXPECT_GT(stats.faults[i], 0u) << Name(static_cast<Fault>(i));
  EXPECT_GT(stats.failovers, 1'000u);
}

// A cluster in order, of three nodes close to each other, with the protocol's own times.
HistoryOptions InOrder(uint64_t seed) {
  HistoryOptions options;
  options.seed = seed;
  options.faulty_ms = 20'000;
  options.fault_gap_ms = 1'000;
  options.delay_ms_max = 2;
  options.tick_ms = 10;
  options.clients_begin_ms = 2'000;
  options.client_timeout_ms = 50;
  options.clients = 4;
  options.think_ms_max = 10;
  options.crash = options.power_loss = options.freeze = options.partition = 0;
  options.coordinator_away = options.slow_disk = options.switchover = options.placement = 0;
  options.disk_loss = options.rot = 0;
  return options;
}

uint64_t LongestWait(void (*with)(HistoryOptions*)) {
  Stats stats;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    HistoryOptions options = InOrder(seed);
    with(&options);
    const HistoryResult result = RunHistory(options);
    EXPECT_EQ(Text(result.violation), "") << "seed " << seed;
    stats.Add(result.stats);
  }
  EXPECT_GT(stats.failovers, 5u);
  return stats.longest_wait_ms;
}

TEST(ClusterSimulation, AKilledNodeCostsASecondAndAHalfAtMost) {
  EXPECT_LE(LongestWait([](HistoryOptions* o) { o->crash = o->faults_max = 1; }), 1'500u);
}

TEST(ClusterSimulation, AFrozenNodeCostsASecondAndAHalfAtMost) {
  EXPECT_LE(LongestWait([](HistoryOptions* o) { o->freeze = o->faults_max = 1; }), 1'500u);
}

TEST(ClusterSimulation, ASwitchoverCostsAFifthOfASecondAtMost) {
  EXPECT_LE(LongestWait([](HistoryOptions* o) { o->switchover = 1; }), 200u);
}

TEST(ClusterSimulation, ARunWhoseReplicasCannotBeEnoughIsFoundToBeStuck) {
  HistoryOptions options = DrawHistory(3);
  options.nodes = options.replicas = options.min_in_sync = 2;
  options.faulty_ms = 1'000;
  // Nothing is ever synced in time.
  options.sync_ms_max = 10'000'000;
  const HistoryResult result = RunHistory(options);
  ASSERT_TRUE(result.violation);
  EXPECT_EQ(result.violation->invariant, Progress::kName);
}

}  // namespace
}  // namespace forebay::cluster_simulation
