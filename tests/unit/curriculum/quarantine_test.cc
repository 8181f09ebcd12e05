// Poison tasks go out of circulation, and come back by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

using codec::Order;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<uint64_t> Hashes(uint64_t first, uint64_t count) {
  std::vector<uint64_t> hashes;
  for (const NewTask& task : MakeTasks(first, count)) hashes.push_back(task.external_hash);
  return hashes;
}

TEST(Quarantine, FollowsTheLastOfTheFailuresAllowed) {
  Curriculum curriculum = MakeCurriculum(Order::kStatic, 3);
  const TaskId poison = TaskId::Make(kSource, 1);
  EXPECT_FALSE(curriculum.CountFailure(poison, 3));
  EXPECT_FALSE(curriculum.CountFailure(poison, 3));
  EXPECT_TRUE(curriculum.CountFailure(poison, 3));
  EXPECT_FALSE(curriculum.CountFailure(poison, 3)) << "it is quarantined once";
  EXPECT_EQ(curriculum.task(poison)->quarantined, 1);
  EXPECT_EQ(curriculum.source(kSource)->quarantined(), 1u);
  Prng prng(1);
  EXPECT_THAT(Draw(curriculum, 4, prng), ElementsAre(0, 2, 0, 2));
}

TEST(Quarantine, NeverComesWithoutALimit) {
  Curriculum curriculum = MakeCurriculum(Order::kStatic, 1);
  for (int i = 0; i < 40'000; ++i) {
    ASSERT_FALSE(curriculum.CountFailure(TaskId::Make(kSource, 0), 0));
  }
}

TEST(Quarantine, ForgetsFailuresWhenAGroupFinishes) {
  Curriculum curriculum = MakeCurriculum(Order::kStatic, 1);
  const TaskId task = TaskId::Make(kSource, 0);
  EXPECT_FALSE(curriculum.CountFailure(task, 2));
  curriculum.GroupBegun(task);
  curriculum.GroupFinished(task, {.rollouts = 4});
  EXPECT_FALSE(curriculum.CountFailure(task, 2));
  EXPECT_TRUE(curriculum.CountFailure(task, 2));
}

TEST(Quarantine, OfAllTasksEndsTheDrawsUntilSomeAreRequeued) {
  for (Order order : {Order::kStatic, Order::kShuffled, Order::kWeighted}) {
    Curriculum curriculum = MakeCurriculum(order, 100);
    Prng prng(1);
    EXPECT_EQ(curriculum.SetQuarantine(kSource, Hashes(0, 100), true), 100u);
    EXPECT_EQ(curriculum.SetQuarantine(kSource, Hashes(0, 100), true), 0u);
    EXPECT_THAT(Draw(curriculum, 1, prng), IsEmpty());
    // Hashes of no task are skipped.
    EXPECT_EQ(curriculum.SetQuarantine(kSource, Hashes(98, 10), false), 2u);
    std::vector<uint32_t> drawn = Draw(curriculum, 50, prng);
    std::sort(drawn.begin(), drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
    EXPECT_THAT(drawn, ElementsAre(98, 99));
    EXPECT_EQ(curriculum.RequeueAll(kSource), 98u);
    EXPECT_EQ(curriculum.RequeueAll(kSource), 0u);
    EXPECT_EQ(curriculum.source(kSource)->drawable(), 100u);
  }
}

TEST(Requeue, GivesATaskThatFailedItsTurnInTheLastEpoch) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 50, 1);
  Prng prng(1);
  Draw(curriculum, 50, prng);
  const TaskId failed = TaskId::Make(kSource, 7);
  EXPECT_TRUE(curriculum.CountFailure(failed, 1));
  EXPECT_EQ(curriculum.RequeueAll(kSource), 1u);
  EXPECT_EQ(curriculum.task(failed)->failures, 0);
  EXPECT_THAT(Draw(curriculum, 50, prng), ElementsAre(7));
}

TEST(Requeue, DoesNotRepeatATaskThatHadItsTurn) {
  Curriculum curriculum = MakeCurriculum(Order::kStatic, 3, 1);
  Prng prng(1);
  EXPECT_THAT(Draw(curriculum, 2, prng), ElementsAre(0, 1));
  curriculum.SetQuarantine(kSource, Hashes(0, 3), true);
  EXPECT_FALSE(curriculum.CanDraw(kSource));
  curriculum.SetQuarantine(kSource, Hashes(0, 3), false);
  EXPECT_THAT(Draw(curriculum, 3, prng), ElementsAre(2));
}

// Nearly every step of the shuffle meets a task out of circulation; the few others are each handed
// out once.
TEST(Quarantine, OfNearlyAllLeavesTheRestTheirTurns) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 100'000);
  curriculum.SetQuarantine(kSource, Hashes(0, 100'000), true);
  curriculum.SetQuarantine(kSource, {Hashes(5, 1)[0], Hashes(50'000, 1)[0], Hashes(99'999, 1)[0]},
                           false);
  Prng prng(1);
  for (int epoch = 0; epoch < 1000; ++epoch) {
    ASSERT_THAT(Draw(curriculum, 3, prng), UnorderedElementsAre(5, 50'000, 99'999));
  }
}

TEST(Quarantine, KeepsTheWeightForTheReturn) {
  Curriculum curriculum = MakeCurriculum(Order::kWeighted, 2);
  const TaskId heavy = TaskId::Make(kSource, 0);
  curriculum.SetQuarantine(kSource, Hashes(0, 1), true);
  ASSERT_TRUE(curriculum.SetWeight(heavy, 60'000).ok());
  Prng prng(1);
  EXPECT_THAT(Draw(curriculum, 3, prng), ElementsAre(1, 1, 1));
  curriculum.RequeueAll(kSource);
  EXPECT_THAT(Draw(curriculum, 3, prng), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace forebay::curriculum
