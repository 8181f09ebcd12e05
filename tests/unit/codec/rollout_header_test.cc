#include "codec/rollout_header.h"

#include <gtest/gtest.h>

#include "codec/wire.h"
#include "tests/unit/codec/header_agreement.h"
#include "tests/unit/codec/random_header.h"

namespace forebay::codec {
namespace {

TEST(DecodeRolloutHeader, ReadsWhatProtobufWrites) {
  Prng prng(1);
  RolloutHeader reused;
  for (int i = 0; i < 20'000; ++i) {
    const v1::RolloutHeader message = RandomHeader(prng);
    const std::string bytes = message.SerializeAsString();
    FieldError error;
    ASSERT_TRUE(DecodeRolloutHeader(bytes, &reused, &error)) << error.field << error.message;
    ASSERT_EQ(CompareHeader(reused, message), "");
  }
}

TEST(DecodeRolloutHeader, AgreesWithProtobufOnDamagedBytes) {
  Prng prng(2);
  RolloutHeader reused;
  int accepted = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string bytes = RandomHeader(prng).SerializeAsString();
    Damage(&bytes, prng);
    const std::string difference = HeaderDisagreement(bytes, &reused);
    ASSERT_EQ(difference, "") << "history " << i;
    FieldError error;
    accepted += DecodeRolloutHeader(bytes, &reused, &error) ? 1 : 0;
  }
  EXPECT_GT(accepted, 5'000);
}

TEST(DecodeRolloutHeader, SkipsUnknownFieldsAndTakesTheLastScalar) {
  std::string bytes;
  WireWriter writer(&bytes);
  writer.Varint(7, 1);
  writer.Bytes(99, "unknown");
  writer.Varint(100, 5);
  writer.Fixed(101, uint64_t{6});
  writer.RawVarint(Tag(102, WireType::kGroup));
  writer.Varint(1, 3);
  writer.RawVarint(Tag(102, WireType::kGroupEnd));
  writer.Varint(7, 2);
  RolloutHeader header;
  FieldError error;
  ASSERT_TRUE(DecodeRolloutHeader(bytes, &header, &error));
  EXPECT_EQ(header.duration_ms, 2u);
  EXPECT_EQ(HeaderDisagreement(bytes, &header), "");
}

TEST(DecodeRolloutHeader, StopsAtCountsBeyondTheLimits) {
  RolloutHeader header;
  FieldError error;
  v1::RolloutHeader columns;
  for (size_t i = 0; i <= kColumnsMax; ++i) columns.add_columns();
  EXPECT_FALSE(DecodeRolloutHeader(columns.SerializeAsString(), &header, &error));
  EXPECT_EQ(error.field, "columns");
  v1::RolloutHeader sequences;
  for (size_t i = 0; i <= kSequencesMax; ++i) sequences.add_sequences();
  EXPECT_FALSE(DecodeRolloutHeader(sequences.SerializeAsString(), &header, &error));
  EXPECT_EQ(error.field, "sequences");
  v1::RolloutHeader rewards;
  for (size_t i = 0; i <= kRewardsMax; ++i) (*rewards.mutable_rewards())[std::to_string(i)] = 1;
  EXPECT_FALSE(DecodeRolloutHeader(rewards.SerializeAsString(), &header, &error));
  EXPECT_EQ(error.field, "rewards");
  EXPECT_FALSE(DecodeRolloutHeader(std::string(kHeaderBytesMax + 1, '\0'), &header, &error));
  EXPECT_EQ(error.field, "header");
}

}  // namespace
}  // namespace forebay::codec
