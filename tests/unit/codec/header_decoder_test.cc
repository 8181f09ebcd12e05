#include "codec/header_decoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "codec/wire.h"
#include "tests/unit/codec/header_agreement.h"
#include "tests/unit/codec/random_header.h"

namespace forebay::codec {
namespace {

// The decoder that has seen many headers against protobuf, and its header's judgement against that
// of a header which is decoded the long way.
void ExpectAgreement(const std::string& bytes, HeaderDecoder* seasoned) {
  FieldError error, fresh_error;
  const RolloutHeader* const header = seasoned->Decode(bytes, &error);
  RolloutHeader fresh;
  ASSERT_EQ(header != nullptr, DecodeRolloutHeader(bytes, &fresh, &fresh_error));
  EXPECT_EQ(error.field, fresh_error.field);
  EXPECT_EQ(error.message, fresh_error.message);
  if (header == nullptr) return;
  v1::RolloutHeader message;
  ASSERT_TRUE(message.ParseFromString(bytes));
  ASSERT_EQ(CompareHeader(*header, message), "");
  const FieldError expected = CheckRolloutHeader(fresh, bytes.size());
  const FieldError found = CheckRolloutHeader(*header, bytes.size());
  EXPECT_EQ(found.field, expected.field);
  EXPECT_EQ(found.message, expected.message);
  if (found.ok()) seasoned->Remember(bytes);
}

TEST(HeaderDecoder, KnowsALayoutFromItsSecondHeaderOn) {
  HeaderDecoder decoder;
  v1::RolloutHeader header = GoodHeader();
  header.set_attempt_id(1);
  header.set_token(1);
  ExpectAgreement(header.SerializeAsString(), &decoder);
  EXPECT_EQ(decoder.layout(), 0u);
  header.set_attempt_id(0x123456789abcdef);
  header.set_token(77);
  (*header.mutable_rewards())["reward"] = -0.5;
  header.mutable_columns(6)->set_bytes(10);
  header.mutable_columns(6)->set_sequence_bytes(0, 8);
  header.mutable_columns(6)->set_sequence_bytes(1, 2);
  header.mutable_sequences(1)->mutable_versions(1)->set_number(90);
  ExpectAgreement(header.SerializeAsString(), &decoder);
  EXPECT_NE(decoder.layout(), 0u);
}

TEST(HeaderDecoder, TakesWiderNumbersAsAnotherLayout) {
  HeaderDecoder decoder;
  v1::RolloutHeader header = GoodHeader();
  header.set_duration_ms(127);
  ExpectAgreement(header.SerializeAsString(), &decoder);
  header.set_duration_ms(128);
  ExpectAgreement(header.SerializeAsString(), &decoder);
  EXPECT_EQ(decoder.layout(), 0u);
  header.set_duration_ms(16'383);
  ExpectAgreement(header.SerializeAsString(), &decoder);
  EXPECT_NE(decoder.layout(), 0u);
}

TEST(HeaderDecoder, TellsLayoutsApart) {
  HeaderDecoder decoder;
  v1::RolloutHeader math = GoodHeader(), code = GoodHeader();
  math.set_source("math");
  code.set_source("code");
  uint64_t layouts[2] = {};
  for (int i = 0; i < 2; ++i) {
    ExpectAgreement(math.SerializeAsString(), &decoder);
    layouts[0] = decoder.layout();
    ExpectAgreement(code.SerializeAsString(), &decoder);
    layouts[1] = decoder.layout();
  }
  EXPECT_NE(layouts[0], 0u);
  EXPECT_NE(layouts[1], 0u);
  EXPECT_NE(layouts[0], layouts[1]);
}

TEST(HeaderDecoder, ChecksTheNumbersOfAKnownLayout) {
  HeaderDecoder decoder;
  ExpectAgreement(GoodHeader().SerializeAsString(), &decoder);
  for (const auto spoil : {+[](v1::RolloutHeader& h) { h.mutable_columns(0)->set_bytes(65); },
                           +[](v1::RolloutHeader& h) { h.mutable_sequences(0)->set_tokens(2); },
                           +[](v1::RolloutHeader& h) { (*h.mutable_rewards())["reward"] = NAN; }}) {
    v1::RolloutHeader header = GoodHeader();
    spoil(header);
    const std::string bytes = header.SerializeAsString();
    ExpectAgreement(bytes, &decoder);
    EXPECT_NE(decoder.layout(), 0u);
    FieldError error;
    EXPECT_FALSE(CheckRolloutHeader(*decoder.Decode(bytes, &error), bytes.size()).ok());
  }
}

TEST(HeaderDecoder, ForgetsTheLayoutUsedLongestAgo) {
  HeaderDecoder decoder;
  for (size_t i = 0; i <= HeaderDecoder::kLayoutsMax; ++i) {
    v1::RolloutHeader header = GoodHeader();
    header.set_site("site-" + std::to_string(i));
    ExpectAgreement(header.SerializeAsString(), &decoder);
    // The first one is used again and again.
    header.set_site("site-0");
    ExpectAgreement(header.SerializeAsString(), &decoder);
    EXPECT_EQ(decoder.layout(), 1u);
  }
  v1::RolloutHeader second = GoodHeader();
  second.set_site("site-1");
  ExpectAgreement(second.SerializeAsString(), &decoder);
  EXPECT_EQ(decoder.layout(), 0u);
}

TEST(HeaderDecoder, MakesFewLayoutsWhereNothingRepeats) {
  HeaderDecoder decoder;
  v1::RolloutHeader header = GoodHeader();
  const auto push = [&](int i) {
    header.set_extra_json(std::to_string(1000 + i));
    ExpectAgreement(header.SerializeAsString(), &decoder);
    return decoder.layout();
  };
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(push(i), 0u);
  int known = 0;
  for (int i = 999; i > 991; --i) known += push(i) != 0 ? 1 : 0;
  EXPECT_EQ(known, 1) << "one in eight";
}

TEST(HeaderDecoder, AgreesWithProtobufOnAnyBytes) {
  HeaderDecoder decoder;
  Prng prng(7);
  int known = 0;
  for (int i = 0; i < 20'000; ++i) {
    v1::RolloutHeader header = i % 16 == 0 ? RandomHeader(prng) : GoodHeader();
    header.set_attempt_id(1 + prng.Below(1000));
    std::string bytes = header.SerializeAsString();
    if (i % 4 > 0) Damage(&bytes, prng);
    // A byte that changes keeps the length: most of these meet a known layout.
    if (i % 8 == 0 && !bytes.empty()) bytes[prng.Below(bytes.size())] = prng.Next() & 0xff;
    ExpectAgreement(bytes, &decoder);
    known += decoder.layout() != 0 ? 1 : 0;
    if (HasFatalFailure()) FAIL() << "history " << i;
  }
  EXPECT_GT(known, 5'000);
}

TEST(HeaderDecoder, TakesTheLastOfAFieldThatComesTwice) {
  for (const bool reward_twice : {false, true}) {
    HeaderDecoder decoder;
    for (uint64_t duration : {1u, 2u, 100u}) {
      std::string bytes = GoodHeader().SerializeAsString();
      WireWriter writer(&bytes);
      writer.Varint(7, 5);
      writer.Varint(7, duration);
      v1::Column own = GoodHeader().columns(3);
      own.set_name("own.other");
      writer.Message(5, GoodHeader().columns(0).SerializeAsString() + own.SerializeAsString());
      std::string reward;
      WireWriter(&reward).Bytes(1, "reward");
      WireWriter(&reward).Fixed(2, static_cast<double>(duration));
      if (reward_twice) writer.Message(6, reward);
      ExpectAgreement(bytes, &decoder);
      EXPECT_EQ(decoder.layout() != 0, duration > 1 && !reward_twice);
    }
  }
}

}  // namespace
}  // namespace forebay::codec
