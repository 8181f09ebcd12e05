#include "ctl/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Apply(const std::vector<std::string>& assignments, v1::SourceSettings* settings) {
  std::set<std::string> fields;
  return ApplySettings(assignments, settings, &fields);
}

TEST(SettingsTest, EveryKindOfFieldIsReached) {
  v1::SourceSettings settings;
  std::set<std::string> fields;
  ASSERT_TRUE(
      ApplySettings({"group_size=8", "lease.max_ms=60000", "rewards.format=0.2",
                     "late=mask_old_tokens", "required_columns=tokens,logprobs", "paused=true",
                     "weight=0.5", "sampling_json={\"temperature\": 1}", "lease.min_ms=5"},
                    &settings, &fields)
          .ok());
  EXPECT_EQ(settings.group_size(), 8u);
  EXPECT_EQ(settings.lease().max_ms(), 60000u);
  EXPECT_EQ(settings.lease().min_ms(), 5u);
  EXPECT_EQ(settings.rewards().at("format"), 0.2);
  EXPECT_EQ(settings.late(), v1::LATE_MASK_OLD_TOKENS);
  EXPECT_THAT(settings.required_columns(), ElementsAre("tokens", "logprobs"));
  EXPECT_TRUE(settings.paused());
  EXPECT_EQ(settings.weight(), 0.5);
  EXPECT_EQ(settings.sampling_json(), "{\"temperature\": 1}");
  EXPECT_THAT(fields, ElementsAre("group_size", "late", "lease", "paused", "required_columns",
                                  "rewards", "sampling_json", "weight"));
}

TEST(SettingsTest, AnEmptyValueIsTheDefault) {
  v1::SourceSettings settings;
  settings.set_group_size(4);
  settings.add_required_columns("tokens");
  (*settings.mutable_rewards())["format"] = 1;
  ASSERT_TRUE(Apply({"group_size=", "required_columns=", "rewards.format="}, &settings).ok());
  EXPECT_EQ(settings.group_size(), 0u);
  EXPECT_EQ(settings.required_columns_size(), 0);
  EXPECT_TRUE(settings.rewards().empty());
}

TEST(SettingsTest, RefusalsNameTheSettingTheValueAndWhatIsPossible) {
  v1::SourceSettings settings;
  const auto message = [&](const std::string& assignment) {
    return std::string(Apply({assignment}, &settings).message());
  };
  EXPECT_THAT(message("group_size=many"), HasSubstr("group_size: is 'many'"));
  EXPECT_THAT(message("group_size=-1"), HasSubstr("group_size: is '-1'"));
  EXPECT_THAT(message("late=never"),
              HasSubstr("drop, baseline_only, mask_old_tokens, train, wait"));
  EXPECT_THAT(message("lease.nothing=1"), HasSubstr("min_ms, max_ms"));
  EXPECT_THAT(message("lease=1"), HasSubstr("lease"));
  EXPECT_THAT(message("rewards=1"), HasSubstr("rewards.KEY=WEIGHT"));
  EXPECT_THAT(message("rewards.a=x"), HasSubstr("'x'"));
  EXPECT_THAT(message("paused=perhaps"), HasSubstr("true or false"));
  EXPECT_THAT(message("weight.a=1"), HasSubstr("no parts"));
  EXPECT_THAT(message("name=other"), HasSubstr("keeps its name"));
  EXPECT_THAT(message("group_size"), HasSubstr("NAME=VALUE"));
}

}  // namespace
}  // namespace forebay::ctl
