#include "rollout/sequence.h"

#include <gtest/gtest.h>

namespace forebay::rollout {
namespace {

using codec::LagOf;

// Two sequences: 4 tokens of version 3 and 6 of version 5; 10 tokens of the assigned version.
std::vector<SequenceMeta> Two() {
  return {{10, 2, 8, std::nullopt, {{0, {0, 3}, 3}, {4, {0, 5}, 5}}}, {10, 1, 9, std::nullopt, {}}};
}

TEST(VersionBy, CountsFromWhatTheSourceSays) {
  EXPECT_EQ(VersionBy(LagOf::kOldest, Two(), 4), 3u);
  EXPECT_EQ(VersionBy(LagOf::kNewest, Two(), 4), 5u);
  EXPECT_EQ(VersionBy(LagOf::kStart, Two(), 2), 2u);
  // (4 x 3 + 6 x 5 + 10 x 4) / 20 = 4.1
  EXPECT_EQ(VersionBy(LagOf::kMeanToken, Two(), 4), 4u);
  EXPECT_EQ(VersionBy(LagOf::kOldest, {}, 7), 7u);
}

TEST(LossTokensFrom, LeavesOutOldRuns) {
  const auto two = Two();
  EXPECT_EQ(LossTokensFrom(two[0], 0, 4), 8u);
  EXPECT_EQ(LossTokensFrom(two[0], 4, 4), 5u);
  EXPECT_EQ(LossTokensFrom(two[0], UINT32_MAX, 4), 0u);
  EXPECT_EQ(LossTokensFrom(two[1], 4, 4), 9u);
  EXPECT_EQ(LossTokensFrom(two[1], 5, 4), 0u);
}

}  // namespace
}  // namespace forebay::rollout
