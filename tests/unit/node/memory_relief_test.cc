#include "node/memory_relief.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::node {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr ReliefFacts kStandstill = {
    .waiters = 2, .step_lacks_groups = true, .groups_ready = 0, .progress = 5};

TEST(ReliefClock, ActsOnceTheStandstillHasLasted) {
  ReliefClock clock;
  EXPECT_FALSE(clock.Stuck(0, 1000, kStandstill));  // the first look cannot know of progress
  EXPECT_FALSE(clock.Stuck(100, 1000, kStandstill));
  EXPECT_FALSE(clock.Stuck(1099, 1000, kStandstill));
  EXPECT_TRUE(clock.Stuck(1100, 1000, kStandstill));
}

TEST(ReliefClock, CountsAnewAfterItActed) {
  ReliefClock clock;
  clock.Stuck(0, 1000, kStandstill);
  clock.Stuck(100, 1000, kStandstill);
  ASSERT_TRUE(clock.Stuck(1100, 1000, kStandstill));
  EXPECT_FALSE(clock.Stuck(1200, 1000, kStandstill));
  EXPECT_FALSE(clock.Stuck(2199, 1000, kStandstill));
  EXPECT_TRUE(clock.Stuck(2200, 1000, kStandstill));
}

TEST(ReliefClock, WaitsWhileAnythingMoves) {
  const auto interrupted_by = [](const ReliefFacts& interruption) {
    ReliefClock clock;
    clock.Stuck(0, 1000, kStandstill);
    clock.Stuck(100, 1000, kStandstill);
    clock.Stuck(600, 1000, interruption);
    clock.Stuck(700, 1000, kStandstill);
    return !clock.Stuck(1200, 1000, kStandstill);
  };
  ReliefFacts moved = kStandstill;
  moved.progress = 6;
  EXPECT_TRUE(interrupted_by(moved));
  ReliefFacts ready = kStandstill;
  ready.groups_ready = 1;
  EXPECT_TRUE(interrupted_by(ready));
  ReliefFacts no_step = kStandstill;
  no_step.step_lacks_groups = false;
  EXPECT_TRUE(interrupted_by(no_step));
  ReliefFacts nobody = kStandstill;
  nobody.waiters = 0;
  EXPECT_TRUE(interrupted_by(nobody));
  EXPECT_FALSE(interrupted_by(kStandstill));
}

TEST(ChooseWaiters, TakesThoseOfTheOldestGroupInTheirOrder) {
  EXPECT_THAT(ChooseWaiters({{.id = 1, .order = 9},
                             {.id = 2, .order = 4},
                             {.id = 3, .order = 9},
                             {.id = 4, .order = 4}}),
              ElementsAre(2, 4));
}

TEST(ChooseWaiters, PassesOverThoseWhoseGroupIsNotIncomplete) {
  EXPECT_THAT(ChooseWaiters({{.id = 1, .order = {}}, {.id = 2, .order = 4}}), ElementsAre(2));
  EXPECT_THAT(ChooseWaiters({{.id = 1, .order = {}}}), IsEmpty());
  EXPECT_THAT(ChooseWaiters({}), IsEmpty());
}

TEST(ChooseWaiters, LetsInWhatIsRefusedAtOnceBehindTheOldestGroup) {
  EXPECT_THAT(ChooseWaiters({{.id = 1, .order = {}, .settled = true},
                             {.id = 2, .order = {}},
                             {.id = 3, .order = 4},
                             {.id = 4, .order = {}, .settled = true}}),
              ElementsAre(3, 1, 4));
}

TEST(ChooseDrops, TakesFirstWhatTheStepDoesNotWant) {
  const std::vector<FilledShard> shards = {{.shard = ShardId(0), .open = 3, .others = 0},
                                           {.shard = ShardId(1), .open = 1, .others = 2},
                                           {.shard = ShardId(2), .open = 0, .others = 5},
                                           {.shard = ShardId(3), .open = 0, .others = 0}};
  const DropTarget all[] = {{ShardId(2), true}, {ShardId(1), true}, {ShardId(0)}, {ShardId(1)}};
  EXPECT_THAT(ChooseDrops(shards, true), ElementsAreArray(all));
  EXPECT_THAT(ChooseDrops(shards, false), ElementsAre(all[0], all[1]));
}

TEST(PlanRelief, SparesTheStepsOwnGroupsWhenOnlyActorsWaitOrItDoesNotFit) {
  const std::vector<FilledShard> shards = {{.shard = ShardId(0), .open = 1, .others = 1}};
  ReliefLook look;
  look.shards = shards;
  EXPECT_EQ(PlanRelief(look).drops, ChooseDrops(shards, false));
  look.waiting = {{.id = 7, .order = 1}};
  EXPECT_EQ(PlanRelief(look).drops, ChooseDrops(shards, true));
  EXPECT_THAT(PlanRelief(look).admit, ElementsAre(7));
  look.too_large = true;
  EXPECT_EQ(PlanRelief(look).drops, ChooseDrops(shards, false));
}

TEST(PlanRelief, DropsUnlessAGroupIsCompletedOrAllThatIsOverGotIn) {
  ReliefLook look;
  look.waiting = {{.id = 1}};
  EXPECT_TRUE(PlanRelief(look).DropsAfter(0));
  look.waiting = {{.id = 1, .settled = true}, {.id = 2, .settled = true}};
  EXPECT_TRUE(PlanRelief(look).DropsAfter(0));
  EXPECT_TRUE(PlanRelief(look).DropsAfter(1));
  EXPECT_FALSE(PlanRelief(look).DropsAfter(2));
  look.waiting.push_back({.id = 3, .order = 1});
  EXPECT_TRUE(PlanRelief(look).DropsAfter(0));
  EXPECT_FALSE(PlanRelief(look).DropsAfter(1));
}

TEST(FactsOf, CountsActorsThatWaitOnceWhatIsGeneratedCannotFillTheStep) {
  ReliefLook look;
  look.step_lacks_groups = true;
  look.lacking = 2;
  look.starved = 1;
  EXPECT_EQ(FactsOf(look).waiters, 1u);
  look.in_flight = 5;  // will be pushed, and then it is seen whether that waits
  look.open = 1;
  EXPECT_EQ(FactsOf(look).waiters, 0u);
  look.shards = {{.shard = ShardId(0), .open = 1, .others = 1}};
  EXPECT_EQ(FactsOf(look).waiters, 1u);
  look.open = 2;
  EXPECT_EQ(FactsOf(look).waiters, 0u);
  look.waiting = {{.id = 1}, {.id = 2}};
  EXPECT_EQ(FactsOf(look).waiters, 2u);
}

// Actors push again what waits for too long: that must not put relief off.
TEST(FactsOf, TakesPushesThatComeToWaitForNoProgress) {
  ReliefLook look;
  look.step_lacks_groups = true;
  look.used_bytes = 900;
  look.moved = 3;
  ReliefClock clock;
  clock.Stuck(0, 1000, FactsOf(look));
  for (uint64_t now_ms = 100; now_ms < 1200; now_ms += 100) {
    look.waiting.push_back({.id = now_ms});
    EXPECT_EQ(clock.Stuck(now_ms, 1000, FactsOf(look)), now_ms == 1100) << now_ms;
  }
}

TEST(FactsOf, TakesBytesAndRolloutsThatMoveForProgress) {
  ReliefLook look;
  look.used_bytes = 900;
  look.moved = 3;
  const uint64_t progress = FactsOf(look).progress;
  look.used_bytes = 800;
  EXPECT_NE(FactsOf(look).progress, progress);
  look.used_bytes = 900;
  look.moved = 4;
  EXPECT_NE(FactsOf(look).progress, progress);
}

}  // namespace
}  // namespace forebay::node
