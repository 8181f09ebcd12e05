#include "client/fetch_frame.h"

#include <gtest/gtest.h>

#include "forebay/v1/trainer.pb.h"

namespace forebay::client {
namespace {

std::string Sample() {
  v1::FetchFrame frame;
  frame.set_id(300);
  frame.mutable_layout()->set_revision(7);
  frame.set_data("the data of the frame");
  frame.set_last(true);
  frame.set_error_code(5);
  frame.set_error_message("gone");
  return frame.SerializeAsString();
}

void ExpectSample(const FetchFrameView& frame) {
  EXPECT_EQ(frame.id, 300u);
  EXPECT_TRUE(frame.has_layout);
  v1::MicroBatchLayout layout;
  ASSERT_TRUE(layout.ParseFromString(frame.layout));
  EXPECT_EQ(layout.revision(), 7u);
  std::string data;
  for (const auto& part : frame.data) data.append(part);
  EXPECT_EQ(data, "the data of the frame");
  EXPECT_TRUE(frame.last);
  EXPECT_EQ(frame.error_code, 5);
  EXPECT_EQ(frame.error_message, "gone");
}

TEST(FetchFrameTest, IsReadWhereverTheTransportCutIt) {
  const std::string bytes = Sample();
  for (size_t a = 0; a <= bytes.size(); ++a) {
    for (size_t b = a; b <= bytes.size(); b += 3) {
      const std::string_view whole = bytes;
      const std::vector<std::string_view> pieces = {whole.substr(0, a), whole.substr(a, b - a), "",
                                                    whole.substr(b)};
      FetchFrameView frame;
      ASSERT_TRUE(ReadFetchFrame(pieces, &frame)) << a << " " << b;
      ExpectSample(frame);
    }
  }
}

TEST(FetchFrameTest, DataIsNotCopied) {
  const std::string bytes = Sample();
  const std::string_view whole = bytes;
  FetchFrameView frame;
  ASSERT_TRUE(ReadFetchFrame({&whole, 1}, &frame));
  ASSERT_EQ(frame.data.size(), 1u);
  EXPECT_GE(frame.data[0].data(), bytes.data());
  EXPECT_LT(frame.data[0].data(), bytes.data() + bytes.size());
}

TEST(FetchFrameTest, OfARepeatedFieldTheLastCounts) {
  v1::FetchFrame first;
  first.set_data("other");
  first.set_error_message("other");
  const std::string bytes = first.SerializeAsString() + Sample();
  const std::string_view whole = bytes;
  FetchFrameView frame;
  ASSERT_TRUE(ReadFetchFrame({&whole, 1}, &frame));
  ExpectSample(frame);
}

TEST(FetchFrameTest, UnknownFieldsArePassedOver) {
  std::string bytes = Sample();
  bytes += std::string("\xf8\x01\x05", 3);  // field 31, varint
  bytes += std::string(
      "\xf9\x01"
      "12345678",
      10);  // field 31, fixed64
  bytes += std::string(
      "\xfa\x01\x02"
      "xy",
      5);  // field 31, bytes
  bytes += std::string(
      "\xfd\x01"
      "1234",
      6);  // field 31, fixed32
  const std::string_view whole = bytes;
  FetchFrameView frame;
  ASSERT_TRUE(ReadFetchFrame({&whole, 1}, &frame));
  ExpectSample(frame);
}

TEST(FetchFrameTest, WhatEndsTooEarlyIsRefused) {
  const std::string bytes =
      "\x1a\x64"
      "short";  // data of 100 bytes
  const std::string_view whole = bytes;
  FetchFrameView frame;
  EXPECT_FALSE(ReadFetchFrame({&whole, 1}, &frame));
  const std::string_view open_varint = "\x08\xff";
  EXPECT_FALSE(ReadFetchFrame({&open_varint, 1}, &frame));
  const std::string_view group = "\x0b";
  EXPECT_FALSE(ReadFetchFrame({&group, 1}, &frame));
}

}  // namespace
}  // namespace forebay::client
