#include "codec/name_table.h"

#include <gtest/gtest.h>

namespace forebay::codec {
namespace {

RolloutHeader HeaderWith(std::initializer_list<const char*> columns) {
  RolloutHeader header;
  for (const char* name : columns) header.columns.emplace_back().name = name;
  return header;
}

TEST(NameTable, TellsRequiredColumnsByBits) {
  NameTable names;
  SourceSettings math, code;
  code.required_columns = {"tokens", "logprobs"};
  ASSERT_TRUE(names.Add(math));
  ASSERT_TRUE(names.Add(code));
  const uint64_t bits = names.ColumnBits(HeaderWith({"loss_mask", "other", "tokens"}));
  EXPECT_EQ(names.RequiredBits(math) & ~bits, 0u);
  const uint64_t missing = names.RequiredBits(code) & ~bits;
  EXPECT_EQ(missing, 4u);
  EXPECT_EQ(names.column_name(2), "logprobs");
}

TEST(NameTable, NumbersWeighedRewardsOnly) {
  NameTable names;
  SourceSettings settings;
  settings.rewards = {{"format", 0.1}, {"reward", 1.0}};
  ASSERT_TRUE(names.Add(settings));
  RolloutHeader header;
  header.rewards = {{"reward", 0.5}, {"length", 9}, {"format", 1}};
  std::vector<uint8_t> rewards;
  names.RewardNumbers(header, &rewards);
  ASSERT_EQ(rewards.size(), 3u);
  EXPECT_EQ(rewards[0], names.RewardNumber("reward"));
  EXPECT_EQ(rewards[1], NameTable::kNamesMax);
  EXPECT_EQ(rewards[2], names.RewardNumber("format"));
  EXPECT_EQ(names.RewardNumber("length"), NameTable::kNamesMax);
}

TEST(NameTable, RefusesMoreNamesThanItHasBits) {
  NameTable names;
  SourceSettings settings;
  settings.required_columns.clear();
  for (size_t i = 0; i < NameTable::kNamesMax; ++i) {
    settings.required_columns.push_back("c" + std::to_string(i));
  }
  ASSERT_TRUE(names.Add(settings));
  SourceSettings one_more;
  one_more.required_columns = {"one_more"};
  EXPECT_FALSE(names.Add(one_more));
  EXPECT_EQ(names.RequiredBits(one_more), 0u);
  EXPECT_TRUE(names.Add(settings));
}

}  // namespace
}  // namespace forebay::codec
