#include "ctl/rollout_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::ctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParseReward, BoundsHoldTogether) {
  v1::ListRolloutsRequest request;
  ASSERT_TRUE(ParseReward("", &request).ok());
  EXPECT_EQ(request.ByteSizeLong(), 0u);
  ASSERT_TRUE(ParseReward("<0.1", &request).ok());
  EXPECT_EQ(request.reward_below(), 0.1);
  EXPECT_FALSE(request.has_reward_above() || request.has_reward_min() || request.has_reward_max());
  request.Clear();
  ASSERT_TRUE(ParseReward(">=-1e3, <= 2", &request).ok());
  EXPECT_EQ(request.reward_min(), -1000);
  EXPECT_EQ(request.reward_max(), 2);
  request.Clear();
  ASSERT_TRUE(ParseReward("> 0.5,<0.75", &request).ok());
  EXPECT_EQ(request.reward_above(), 0.5);
  EXPECT_EQ(request.reward_below(), 0.75);
  request.Clear();
  ASSERT_TRUE(ParseReward("=0", &request).ok());
  EXPECT_TRUE(request.has_reward_min() && request.has_reward_max());
  EXPECT_EQ(request.reward_min(), 0);
}

TEST(ParseReward, WhatIsNoBoundIsNamed) {
  for (const char* wrong :
       {"0.5", "<", "<x", "<nan", ">inf", "=>1", "<<1", "<1,", ",", "==1", "<1 2", "!=1"}) {
    v1::ListRolloutsRequest request;
    const absl::Status status = ParseReward(wrong, &request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--reward"), HasSubstr("finite")))
        << wrong;
  }
}

}  // namespace
}  // namespace forebay::ctl
