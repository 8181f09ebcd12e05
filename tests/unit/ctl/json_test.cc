#include "ctl/json.h"

#include <gtest/gtest.h>

#include <limits>

#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {
namespace {

TEST(JsonTest, NumbersAreNumbersAndIdsAreText) {
  v1::TaskState task;
  task.set_external_id("a\"\\\n");
  task.set_task_id(UINT64_MAX);
  task.set_attempts(UINT64_MAX);
  task.set_pass_a(0.1);
  task.set_pass_b(std::numeric_limits<double>::infinity());
  task.set_quarantined(true);
  EXPECT_EQ(ToJson(task), R"({
  "external_id": "a\"\\\u000a",
  "task_id": "18446744073709551615",
  "attempts": 18446744073709551615,
  "groups": 0,
  "pass_a": 0.1,
  "pass_b": null,
  "failures": 0,
  "quarantined": true,
  "weight": 0,
  "mean_tokens": 0,
  "last_version": 0,
  "last_failure": ""
})");
}

TEST(JsonTest, ListsMapsAndAbsentFields) {
  v1::SetConfigRequest config;
  (*config.mutable_values())["b"] = "2";
  (*config.mutable_values())["a"] = "1";
  EXPECT_EQ(ToJson(config),
            "{\n  \"values\": {\n    \"a\": \"1\",\n    \"b\": \"2\"\n  },\n  \"who\": \"\",\n"
            "  \"why\": \"\",\n  \"dry_run\": false\n}");
  v1::Task task;
  task.set_payload("\xff");
  EXPECT_EQ(ToJson(task),
            "{\n  \"external_id\": \"\",\n  \"payload\": \"/w==\",\n  \"attributes\": \"\",\n"
            "  \"weight\": null\n}");
  v1::ListEnginesResponse empty;
  EXPECT_EQ(ToJson(empty), "{\n  \"engines\": []\n}");
}

TEST(JsonTest, EnumValuesLoseTheirPrefix) {
  EXPECT_EQ(EnumName(v1::VERDICT_DEGRADED), "degraded");
  EXPECT_EQ(EnumName(v1::STEP_STATE_SEALED), "sealed");
  EXPECT_EQ(EnumName(v1::LATE_BASELINE_ONLY), "baseline_only");
  EXPECT_EQ(EnumName(v1::ADVANTAGE_DR_GRPO), "dr_grpo");
  EXPECT_EQ(EnumName(v1::PURPOSE_EVAL), "eval");
  EXPECT_EQ(EnumName(static_cast<v1::Verdict>(77)), "77");
}

}  // namespace
}  // namespace forebay::ctl
