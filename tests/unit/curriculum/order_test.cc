// In which order a source hands out its tasks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/unit/curriculum/fixtures.h"

namespace forebay::curriculum {
namespace {

using codec::Order;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<uint32_t> UpTo(uint32_t size) {
  std::vector<uint32_t> all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<uint32_t> Sorted(std::vector<uint32_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST(StaticOrder, RepeatsTheOrderGivenEachEpoch) {
  Curriculum curriculum = MakeCurriculum(Order::kStatic, 200);
  Prng prng(1);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(Draw(curriculum, 200, prng), UpTo(200));
    EXPECT_EQ(curriculum.source(kSource)->epoch(), epoch);
    EXPECT_EQ(curriculum.source(kSource)->pending(), 0u);
  }
}

TEST(ShuffledOrder, HandsOutEachTaskOnceAnEpochInAnOrderOfItsOwn) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 1000);
  Prng prng(1);
  std::vector<std::vector<uint32_t>> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) {
    epochs.push_back(Draw(curriculum, 1000, prng));
    EXPECT_EQ(Sorted(epochs.back()), UpTo(1000));
    EXPECT_NE(epochs.back(), UpTo(1000));
    for (int earlier = 0; earlier < epoch; ++earlier) EXPECT_NE(epochs[earlier], epochs.back());
  }
}

TEST(ShuffledOrder, DependsOnTheSeedOfTheRunAndOnNothingElse) {
  Prng prng(1), other_prng(2);
  Curriculum first = MakeCurriculum(Order::kShuffled, 100);
  Curriculum same = MakeCurriculum(Order::kShuffled, 100);
  Curriculum other(4321);
  other.PutSource(kSource, Settings(Order::kShuffled));
  std::vector<PayloadId> unused;
  ASSERT_TRUE(other.AddTasks(kSource, MakeTasks(0, 100), &unused).ok());
  const auto drawn = Draw(first, 100, prng);
  EXPECT_EQ(Draw(same, 100, other_prng), drawn);
  EXPECT_NE(Draw(other, 100, prng), drawn);
}

TEST(ShuffledOrder, TakesTasksThatComeWithinAnEpochIntoIt) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 100, 1);
  Prng prng(1);
  std::vector<uint32_t> drawn = Draw(curriculum, 50, prng);
  std::vector<PayloadId> unused;
  ASSERT_TRUE(curriculum.AddTasks(kSource, MakeTasks(100, 70), &unused).ok());
  for (uint32_t index : Draw(curriculum, 1000, prng)) drawn.push_back(index);
  EXPECT_EQ(Sorted(drawn), UpTo(170));
  // The epoch was the last; a late task still gets its turn.
  ASSERT_TRUE(curriculum.AddTasks(kSource, MakeTasks(170, 1), &unused).ok());
  EXPECT_THAT(Draw(curriculum, 1000, prng), ElementsAre(170));
}

TEST(Order, EndsWithTheLastEpochAndGoesOnWhenThereAreMore) {
  for (Order order : {Order::kStatic, Order::kShuffled, Order::kWeighted}) {
    Curriculum curriculum = MakeCurriculum(order, 10, 2);
    Prng prng(1);
    EXPECT_THAT(Draw(curriculum, 100, prng), SizeIs(20));
    EXPECT_FALSE(curriculum.CanDraw(kSource));
    curriculum.PutSource(kSource, Settings(order, 3));
    EXPECT_THAT(Draw(curriculum, 100, prng), SizeIs(10));
    curriculum.PutSource(kSource, Settings(order, 1));
    EXPECT_FALSE(curriculum.CanDraw(kSource));
    curriculum.PutSource(kSource, Settings(order));
    EXPECT_THAT(Draw(curriculum, 100, prng), SizeIs(100));
  }
}

TEST(Order, StopsWhenEpochsAreCutBelowTheRunningOne) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 10);
  Prng prng(1);
  EXPECT_THAT(Draw(curriculum, 25, prng), SizeIs(25));
  curriculum.PutSource(kSource, Settings(Order::kShuffled, 2));
  EXPECT_FALSE(curriculum.CanDraw(kSource));
}

TEST(Order, GivesNothingWhilePausedOrEmpty) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 0);
  Prng prng(1);
  EXPECT_THAT(Draw(curriculum, 1, prng), IsEmpty());
  std::vector<PayloadId> unused;
  ASSERT_TRUE(curriculum.AddTasks(kSource, MakeTasks(0, 5), &unused).ok());
  codec::SourceSettings paused = Settings(Order::kShuffled);
  paused.paused = true;
  curriculum.PutSource(kSource, paused);
  EXPECT_THAT(Draw(curriculum, 1, prng), IsEmpty());
  curriculum.PutSource(kSource, Settings(Order::kShuffled));
  EXPECT_THAT(Draw(curriculum, 5, prng), SizeIs(5));
}

TEST(Order, ChangesWithinAnEpochWithoutHandingATaskOutTwice) {
  Curriculum curriculum = MakeCurriculum(Order::kShuffled, 300);
  Prng prng(1);
  std::vector<uint32_t> drawn = Draw(curriculum, 100, prng);
  curriculum.PutSource(kSource, Settings(Order::kStatic));
  for (uint32_t index : Draw(curriculum, 100, prng)) drawn.push_back(index);
  EXPECT_TRUE(std::is_sorted(drawn.begin() + 100, drawn.end()));
  curriculum.PutSource(kSource, Settings(Order::kShuffled));
  for (uint32_t index : Draw(curriculum, 100, prng)) drawn.push_back(index);
  EXPECT_EQ(Sorted(drawn), UpTo(300));
}

TEST(WeightedOrder, DrawsInProportionToTheWeights) {
  Curriculum curriculum(1);
  curriculum.PutSource(kSource, Settings(Order::kWeighted));
  std::vector<NewTask> tasks;
  double total = 0;
  for (uint32_t i = 0; i < 50; ++i) {
    tasks.push_back(MakeTask(i, static_cast<float>(i) / 4));
    total += tasks.back().weight;
  }
  std::vector<PayloadId> unused;
  ASSERT_TRUE(curriculum.AddTasks(kSource, tasks, &unused).ok());
  constexpr int kDraws = 200'000;
  std::vector<int> counts(tasks.size());
  Prng prng(17);
  for (uint32_t index : Draw(curriculum, kDraws, prng)) ++counts[index];
  EXPECT_EQ(counts[0], 0);
  double chi_square = 0;
  for (size_t i = 1; i < counts.size(); ++i) {
    const double expected = kDraws * tasks[i].weight / total;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  // 48 degrees of freedom: mean 48, standard deviation 9.8; the bound is at 5 of them.
  EXPECT_LT(chi_square, 97);
}

TEST(LearnableOrder, DrawsByWhatIsNeitherSolvedNorUnsolved) {
  Curriculum curriculum = MakeCurriculum(Order::kLearnable, 4);
  // 0 is solved, 1 unsolved, 2 half; 3 was not tried, and weighs twice.
  const auto finish = [&](uint32_t index, double passes) {
    for (int i = 0; i < 100; ++i) {
      curriculum.GroupFinished(TaskId::Make(kSource, index), {.rollouts = 16, .passes = passes});
    }
  };
  finish(0, 16);
  finish(1, 0);
  finish(2, 8);
  ASSERT_TRUE(curriculum.SetWeight(TaskId::Make(kSource, 3), 2).ok());
  codec::SourceSettings settings = Settings(Order::kLearnable);
  settings.retest = 0.1;
  const auto shares = [&] {
    curriculum.PutSource(kSource, settings);
    std::vector<double> counts(4);
    Prng prng(23);
    for (uint32_t index : Draw(curriculum, 32'000, prng)) counts[index] += 1.0 / 10'000;
    return counts;
  };
  using testing::DoubleNear;
  EXPECT_THAT(shares(), ElementsAre(DoubleNear(0.1, 0.02), DoubleNear(0.1, 0.02),
                                    DoubleNear(1, 0.05), DoubleNear(2, 0.05)));
  settings.retest = 0;  // 4p(1-p) of 161 passes in 162 is left
  EXPECT_THAT(shares(), ElementsAre(DoubleNear(0.026, 0.02), DoubleNear(0.026, 0.02),
                                    DoubleNear(1.05, 0.05), DoubleNear(2.1, 0.05)));
  settings.retest = 1;  // all alike, but for their weights
  EXPECT_THAT(shares(), ElementsAre(DoubleNear(0.64, 0.05), DoubleNear(0.64, 0.05),
                                    DoubleNear(0.64, 0.05), DoubleNear(1.28, 0.05)));
  // What a rewind puts back counts, too.
  settings.retest = 0.1;
  curriculum.PutSource(kSource, settings);
  for (uint32_t i = 0; i < 3; ++i) curriculum.SetStatistics(TaskId::Make(kSource, i), {});
  EXPECT_THAT(shares(), ElementsAre(DoubleNear(0.64, 0.05), DoubleNear(0.64, 0.05),
                                    DoubleNear(0.64, 0.05), DoubleNear(1.28, 0.05)));
}

TEST(WeightedOrder, FollowsAChangedWeightAtOnce) {
  Curriculum curriculum = MakeCurriculum(Order::kWeighted, 10);
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(curriculum.SetWeight(TaskId::Make(kSource, i), i == 4 ? 1e-9f : 0).ok());
  }
  Prng prng(1);
  EXPECT_THAT(Draw(curriculum, 3, prng), ElementsAre(4, 4, 4));
  EXPECT_EQ(curriculum.SetWeight(TaskId::Make(kSource, 4), -1).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(curriculum.SetWeight(TaskId::Make(kSource, 4), 0).ok());
  EXPECT_FALSE(curriculum.CanDraw(kSource));
}

}  // namespace
}  // namespace forebay::curriculum
