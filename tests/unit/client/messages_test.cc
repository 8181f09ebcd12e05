#include "client/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace forebay::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Sample {
  std::vector<uint32_t> tokens = {1, 2, 3, 4};
  std::vector<uint8_t> mask = {0, 0, 1, 1};
  Rollout rollout;
  Sample() {
    rollout.status = RolloutStatus::kTruncated;
    rollout.sequences = {{.tokens = 4,
                          .prompt_tokens = 2,
                          .loss_tokens = 2,
                          .versions = {{.offset = 0, .number = 3, .loss_tokens = 2}},
                          .turns = {{.tokens = 4, .role = "assistant", .temperature = 0.5f}},
                          .advantage = 0.25f}};
    rollout.columns = {MakeColumn<uint32_t>("tokens", tokens),
                       MakeColumn<uint8_t>("loss_mask", mask)};
    rollout.rewards = {{"reward", 1.5}};
    rollout.duration_ms = 12;
    rollout.extra_json = "{}";
    rollout.site = "here";
  }
};

TEST(MessagesTest, ARolloutComesBackAsItWas) {
  Sample sample;
  v1::RolloutHeader header;
  ToWire(sample.rollout, &header);
  std::string payload;
  for (const auto& column : sample.rollout.columns) payload.append(column.bytes);
  auto back = FromWire(header, payload);
  ASSERT_TRUE(back.ok()) << back.status();
  v1::RolloutHeader again;
  ToWire(*back, &again);
  EXPECT_EQ(again.SerializeAsString(), header.SerializeAsString());
  EXPECT_EQ(back->columns[0].bytes.data(), payload.data());
  EXPECT_TRUE(header.columns(0).has_crc32c());
  EXPECT_FALSE(FromWire(header, std::string_view(payload).substr(1)).ok());
}

TEST(MessagesTest, LargeColumnsAreSentLast) {
  Sample sample;
  const std::vector<uint8_t> large(4 * 40, 1), larger(4 * 50, 2), small(4 * 8, 3);
  auto& columns = sample.rollout.columns;
  const auto add = [&](const char* name, const std::vector<uint8_t>& bytes, uint32_t inner) {
    columns.insert(columns.begin(), MakeColumn<uint8_t>(name, bytes, Domain::kToken, {inner}));
  };
  add("small", small, 8);
  add("large", large, 40);
  add("larger", larger, 50);
  add("as large", large, 40);
  std::vector<std::string> sent;
  for (const Column* column : SentColumns(sample.rollout)) sent.push_back(column->name);
  EXPECT_THAT(sent, ElementsAre("small", "tokens", "loss_mask", "as large", "large", "larger"));
  v1::RolloutHeader header;
  ToWire(sample.rollout, &header);
  for (int i = 0; i < header.columns_size(); ++i) {
    EXPECT_EQ(header.columns(i).name(), sent[static_cast<size_t>(i)]);
  }
}

TEST(MessagesTest, DtypesFollowFromTheValues) {
  EXPECT_EQ(DTypeOf<uint8_t>(), DType::kU8);
  EXPECT_EQ(DTypeOf<int8_t>(), DType::kI8);
  EXPECT_EQ(DTypeOf<uint16_t>(), DType::kU16);
  EXPECT_EQ(DTypeOf<int16_t>(), DType::kI16);
  EXPECT_EQ(DTypeOf<uint32_t>(), DType::kU32);
  EXPECT_EQ(DTypeOf<int32_t>(), DType::kI32);
  EXPECT_EQ(DTypeOf<uint64_t>(), DType::kU64);
  EXPECT_EQ(DTypeOf<int64_t>(), DType::kI64);
  EXPECT_EQ(DTypeOf<float>(), DType::kF32);
  EXPECT_EQ(DTypeOf<double>(), DType::kF64);
  EXPECT_EQ(DTypeOf<bool>(), DType::kBool);
}

TEST(MessagesTest, CheckNamesTheFieldThatIsWrong) {
  EXPECT_TRUE(Check(Sample().rollout).ok()) << Check(Sample().rollout);
  Sample shorter;
  shorter.rollout.columns[1].bytes.remove_suffix(1);
  EXPECT_THAT(std::string(Check(shorter.rollout).message()), HasSubstr("columns[1].bytes"));
  Sample nan;
  nan.rollout.rewards["reward"] = std::nan("");
  EXPECT_THAT(std::string(Check(nan.rollout).message()), HasSubstr("rewards"));
  Sample none;
  none.rollout.sequences.clear();
  EXPECT_THAT(std::string(Check(none.rollout).message()), HasSubstr("sequences"));
}

TEST(MessagesTest, AnInvalidOutcomeIsAnErrorTheOthersAreReceipts) {
  v1::PushOutcome outcome;
  outcome.set_result(v1::PUSH_RESULT_INVALID);
  outcome.set_field("columns[2].bytes");
  outcome.set_message("is 12, must be 16");
  EXPECT_EQ(ReceiptOf(outcome).status().message(), "columns[2].bytes: is 12, must be 16");
  outcome.set_result(v1::PUSH_RESULT_LATE);
  ASSERT_TRUE(ReceiptOf(outcome).ok());
  EXPECT_EQ(ReceiptOf(outcome)->result, PushResult::kLate);
  EXPECT_FALSE(ReceiptOf(outcome)->in());
}

}  // namespace
}  // namespace forebay::client
