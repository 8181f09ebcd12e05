#include "rollout/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace forebay::rollout {
namespace {

using codec::AdvantageKind;

const std::vector<double> kRewards = {0, 1, 1, 4};  // mean 1.5, deviation of the sample sqrt(3)

TEST(Advantage, FollowsItsFormula) {
  const Baseline b = MeasureBaseline(kRewards);
  EXPECT_DOUBLE_EQ(b.mean, 1.5);
  EXPECT_DOUBLE_EQ(b.deviation, std::sqrt(3.0));
  EXPECT_FLOAT_EQ(Advantage(AdvantageKind::kGrpo, 4, b),
                  static_cast<float>(2.5 / (std::sqrt(3.0) + 1e-6)));
  EXPECT_FLOAT_EQ(Advantage(AdvantageKind::kDrGrpo, 4, b), 2.5f);
  EXPECT_FLOAT_EQ(Advantage(AdvantageKind::kReinforcePp, 4, b), 2.5f);
  EXPECT_FLOAT_EQ(Advantage(AdvantageKind::kNone, 4, b), 4.0f);
  // The mean of the others is 2 / 3.
  EXPECT_FLOAT_EQ(Advantage(AdvantageKind::kRloo, 4, b), static_cast<float>(4 - 2.0 / 3));
}

TEST(Advantage, OfABaselineOfOneIsZero) {
  const Baseline b = MeasureBaseline(std::vector<double>{3});
  for (const auto kind : {AdvantageKind::kGrpo, AdvantageKind::kDrGrpo, AdvantageKind::kRloo,
                          AdvantageKind::kReinforcePp}) {
    EXPECT_EQ(Advantage(kind, 3, b), 0);
  }
}

TEST(Advantage, StaysFiniteWhenAllRewardsAreEqual) {
  const Baseline b = MeasureBaseline(std::vector<double>{0.1, 0.1, 0.1});
  EXPECT_NEAR(Advantage(AdvantageKind::kGrpo, 0.1, b), 0, 1e-9);
}

TEST(Filter, DropsEqualSingleAndLongGroups) {
  codec::SourceSettings settings;
  const Baseline varied = MeasureBaseline(kRewards);
  const Baseline equal = MeasureBaseline(std::vector<double>{1, 1 + 1e-7});
  const Baseline single = MeasureBaseline(std::vector<double>{1});
  EXPECT_EQ(FilterGroup(settings, varied, 100), FilterResult::kKeep);
  EXPECT_EQ(FilterGroup(settings, equal, 100), FilterResult::kEqual);
  EXPECT_EQ(FilterGroup(settings, single, 100), FilterResult::kSingle);
  settings.filter_max_tokens = 99;
  EXPECT_EQ(FilterGroup(settings, varied, 100), FilterResult::kLength);
  EXPECT_EQ(FilterGroup(settings, varied, 99), FilterResult::kKeep);
  settings.keep_equal_rewards = true;
  EXPECT_EQ(FilterGroup(settings, equal, 1), FilterResult::kKeep);
  EXPECT_EQ(FilterGroup(settings, single, 1), FilterResult::kSingle);
  settings.advantage = AdvantageKind::kNone;
  EXPECT_EQ(FilterGroup(settings, single, 1), FilterResult::kKeep);
}

}  // namespace
}  // namespace forebay::rollout
