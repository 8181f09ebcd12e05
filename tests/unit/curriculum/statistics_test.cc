// Counters and decayed estimates of tasks and sources.
#include "curriculum/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

TEST(RolloutDecay, IsThePowerOfTheDecayOfOneRollout) {
  EXPECT_EQ(RolloutDecay(0), 1);
  EXPECT_EQ(RolloutDecay(1), 1023.0 / 1024);
  for (uint64_t n : {2, 3, 16, 100, 1000, 4097}) {
    EXPECT_NEAR(RolloutDecay(n), std::pow(1023.0 / 1024, static_cast<double>(n)), 1e-12);
  }
  EXPECT_EQ(RolloutDecay(UINT64_MAX), 0);
}

TEST(Survival, FollowsTheShareThatIsTrainedWithinAboutAThousandRollouts) {
  Survival survival;
  EXPECT_EQ(survival.share(), 1);
  survival.Add(0, 16);  // one filtered group is no catastrophe
  EXPECT_NEAR(survival.share(), 0.8, 0.01);
  for (int i = 0; i < 1000; ++i) survival.Add(12, 4);
  EXPECT_NEAR(survival.share(), 0.75, 0.001);
  for (int i = 0; i < 1000; ++i) survival.Add(4, 12);
  EXPECT_NEAR(survival.share(), 0.25, 0.001);
  for (int i = 0; i < 100'000; ++i) survival.Add(0, 16);
  EXPECT_EQ(survival.share(), Survival::kFloor);
}

TEST(Statistics, OfATaskDecayByGroup) {
  Curriculum curriculum = MakeCurriculum(codec::Order::kStatic, 1);
  const TaskId id = TaskId::Make(kSource, 0);
  EXPECT_EQ(curriculum.task(id)->PassRate(), 0.5f);
  curriculum.GroupBegun(id);
  curriculum.GroupBegun(id);
  EXPECT_EQ(curriculum.task(id)->in_flight, 2);
  curriculum.GroupFinished(
      id, {.rollouts = 8, .passes = 6, .tokens_sum = 800, .duration_ms_sum = 8000, .version = 5});
  const TaskRecord& task = *curriculum.task(id);
  EXPECT_EQ(task.in_flight, 1);
  EXPECT_EQ(task.groups, 1u);
  EXPECT_EQ(task.rollouts, 8u);
  EXPECT_EQ(task.last_version, 5u);
  EXPECT_EQ(task.pass_a, 6);
  EXPECT_EQ(task.pass_b, 2);
  EXPECT_EQ(task.mean_tokens, 100);
  EXPECT_EQ(task.mean_duration_ms, 1000);
  curriculum.GroupFinished(
      id, {.rollouts = 8, .passes = 0, .tokens_sum = 1600, .duration_ms_sum = 16000, .version = 6});
  EXPECT_FLOAT_EQ(task.pass_a, 5.4f);
  EXPECT_FLOAT_EQ(task.pass_b, 9.8f);
  EXPECT_FLOAT_EQ(task.mean_tokens, 125);
  EXPECT_FLOAT_EQ(task.mean_duration_ms, 1250);
  curriculum.GroupBegun(id);
  curriculum.GroupDropped(id);
  EXPECT_EQ(task.in_flight, 0);
  EXPECT_EQ(task.groups, 2u);
}

TEST(Statistics, TakeNoPassesBeyondTheRollouts) {
  Curriculum curriculum = MakeCurriculum(codec::Order::kStatic, 2);
  curriculum.GroupFinished(TaskId::Make(kSource, 0), {.rollouts = 4, .passes = 9});
  EXPECT_EQ(curriculum.task(TaskId::Make(kSource, 0))->pass_b, 0);
  curriculum.GroupFinished(TaskId::Make(kSource, 1),
                           {.rollouts = 4, .passes = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_EQ(curriculum.task(TaskId::Make(kSource, 1))->pass_a, 0);
}

TEST(Statistics, OfASourceCountWhatIsTrainedAndWhatIsLost) {
  Curriculum curriculum = MakeCurriculum(codec::Order::kStatic, 1);
  const TaskId id = TaskId::Make(kSource, 0);
  for (int i = 0; i < 2000; ++i) {
    curriculum.GroupFinished(id, {.rollouts = 6, .passes = 3, .tokens_sum = 600});
    curriculum.GroupFinished(id, {.rollouts = 3, .tokens_sum = 300, .filtered = true});
    curriculum.CountLost(kSource, 1);
  }
  const Source& source = *curriculum.source(kSource);
  EXPECT_NEAR(source.survival(), 0.6, 0.01);
  EXPECT_NEAR(source.mean_tokens(), 100, 1e-6);
  EXPECT_EQ(source.counters().groups_finished, 4000u);
  EXPECT_EQ(source.counters().groups_filtered, 2000u);
  EXPECT_EQ(source.counters().rollouts, 18'000u);
  EXPECT_EQ(source.counters().rollouts_lost, 2000u);
}

TEST(LeaseTime, FollowsTheMeasuredDurationsWithinItsBounds) {
  Curriculum curriculum = MakeCurriculum(codec::Order::kStatic, 1);
  const TaskId id = TaskId::Make(kSource, 0);
  const Source& source = *curriculum.source(kSource);
  codec::SourceSettings settings = Settings(codec::Order::kStatic);
  EXPECT_EQ(source.lease_ms(), settings.lease_max_ms);
  curriculum.GroupFinished(id, {.rollouts = 2, .duration_ms_sum = 40'000});
  EXPECT_EQ(source.lease_ms(), 60'000u);
  settings.lease_max_ms = 50'000;
  curriculum.PutSource(kSource, settings);
  EXPECT_EQ(source.lease_ms(), 50'000u);
  settings.lease_duration_factor = 0.1;
  curriculum.PutSource(kSource, settings);
  EXPECT_EQ(source.lease_ms(), 10'000u);
  settings.lease_min_ms = 90'000;  // above the upper bound, which wins
  curriculum.PutSource(kSource, settings);
  EXPECT_EQ(source.lease_ms(), 50'000u);
  settings.lease_max_ms = UINT64_MAX;
  settings.lease_duration_factor = std::numeric_limits<double>::quiet_NaN();
  curriculum.PutSource(kSource, settings);
  EXPECT_EQ(source.lease_ms(), UINT32_MAX);
}

}  // namespace
}  // namespace forebay::curriculum
