#include "ctl/column_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace forebay::ctl {
namespace {

template <class T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

v1::Column Column(v1::DType dtype, double missing = 0) {
  v1::Column column;
  column.set_dtype(dtype);
  column.set_missing(missing);
  return column;
}

double Half(uint16_t bits) { return ValueAt(v1::DTYPE_F16, reinterpret_cast<const char*>(&bits)); }

TEST(ColumnValues, HalvesAreRead) {
  EXPECT_EQ(Half(0x0000), 0);
  EXPECT_EQ(Half(0x3c00), 1);
  EXPECT_EQ(Half(0xc000), -2);
  EXPECT_EQ(Half(0x7bff), 65504);
  EXPECT_EQ(Half(0x0400), std::ldexp(1, -14));
  EXPECT_EQ(Half(0x0001), std::ldexp(1, -24));
  EXPECT_EQ(Half(0x83ff), -std::ldexp(1023, -24));
  EXPECT_EQ(Half(0x7c00), INFINITY);
  EXPECT_EQ(Half(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(Half(0x7e01)));
}

TEST(ColumnValues, ValuesOfEveryTypeAreRead) {
  const auto at = [](v1::DType dtype, auto value) {
    return ValueAt(dtype, reinterpret_cast<const char*>(&value));
  };
  EXPECT_EQ(at(v1::DTYPE_U8, uint8_t{200}), 200);
  EXPECT_EQ(at(v1::DTYPE_I8, int8_t{-3}), -3);
  EXPECT_EQ(at(v1::DTYPE_U16, uint16_t{65000}), 65000);
  EXPECT_EQ(at(v1::DTYPE_I16, int16_t{-300}), -300);
  EXPECT_EQ(at(v1::DTYPE_U32, uint32_t{4'000'000'000}), 4e9);
  EXPECT_EQ(at(v1::DTYPE_I32, int32_t{-70000}), -70000);
  EXPECT_EQ(at(v1::DTYPE_U64, uint64_t{1} << 60), std::ldexp(1, 60));
  EXPECT_EQ(at(v1::DTYPE_I64, int64_t{-5}), -5);
  EXPECT_EQ(at(v1::DTYPE_BF16, uint16_t{0x3fc0}), 1.5);
  EXPECT_EQ(at(v1::DTYPE_F32, -0.25f), -0.25);
  EXPECT_EQ(at(v1::DTYPE_F64, 1e300), 1e300);
  EXPECT_EQ(at(v1::DTYPE_BOOL, uint8_t{1}), 1);
}

TEST(ColumnValues, StatisticsAreOfWhatIsANumber) {
  StatisticsCollector collector(Column(v1::DTYPE_F32));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  collector.Add(Bytes<float>({nan, -3, 1}));
  collector.Add(Bytes<float>({-INFINITY, 5}));
  const ColumnStatistics found = collector.Result();
  EXPECT_EQ(found.values, 5u);
  EXPECT_EQ(found.finite(), 3u);
  EXPECT_EQ(found.nan, 1u);
  EXPECT_EQ(found.infinite, 1u);
  EXPECT_EQ(found.least, -3);
  EXPECT_EQ(found.mean, 1);
  EXPECT_EQ(found.greatest, 5);
}

TEST(ColumnValues, WhatStandsForMissingIsNeitherNumberNorNan) {
  StatisticsCollector collector(Column(v1::DTYPE_F32, std::nan("")));
  collector.Add(Bytes<float>({std::numeric_limits<float>::quiet_NaN(), 2}));
  EXPECT_EQ(collector.Result().missing, 1u);
  EXPECT_EQ(collector.Result().nan, 0u);
  EXPECT_EQ(collector.Result().mean, 2);
  StatisticsCollector experts(Column(v1::DTYPE_I16, -1));
  experts.Add(Bytes<int16_t>({-1, 7, -1}));
  EXPECT_EQ(experts.Result().missing, 2u);
  EXPECT_EQ(experts.Result().least, 7);
  StatisticsCollector nothing(Column(v1::DTYPE_F32));
  EXPECT_EQ(nothing.Result().finite(), 0u);
  EXPECT_EQ(nothing.Result().mean, 0);
}

TEST(ColumnValues, ShapesFollowTheDomain) {
  v1::RolloutHeader header;
  for (const uint32_t tokens : {7u, 5u}) {
    header.add_sequences()->set_tokens(tokens);
    header.mutable_sequences()->rbegin()->set_prompt_tokens(2);
  }
  v1::Column column = Column(v1::DTYPE_I16);
  column.add_inner(3);
  using Shape = std::vector<uint64_t>;
  EXPECT_EQ(ShapeOf(header, column), (Shape{12, 3}));
  column.set_domain(v1::DOMAIN_RESPONSE_TOKEN);
  EXPECT_EQ(ShapeOf(header, column), (Shape{8, 3}));
  column.set_domain(v1::DOMAIN_TOKEN_BUT_LAST);
  EXPECT_EQ(ShapeOf(header, column), (Shape{10, 3}));
  column.set_domain(v1::DOMAIN_SEQUENCE);
  EXPECT_EQ(ShapeOf(header, column), (Shape{2, 3}));
  column.set_domain(v1::DOMAIN_BLOB);
  column.set_bytes(99);
  EXPECT_EQ(ShapeOf(header, column), (Shape{99}));
}

std::vector<uint32_t> Counting(size_t size) {
  std::vector<uint32_t> tokens(size);
  for (size_t i = 0; i < size; ++i) tokens[i] = static_cast<uint32_t>(i);
  return tokens;
}

TEST(Repetition, TextThatGoesOnIsNone) {
  EXPECT_FALSE(FindRepetition({}).has_value());
  EXPECT_FALSE(FindRepetition({5}).has_value());
  EXPECT_FALSE(FindRepetition(Counting(10'000)).has_value());
  // A table of zeros is shorter than what counts.
  std::vector<uint32_t> tokens = Counting(500);
  tokens.insert(tokens.end(), kRepeatTokensMin - 1, 9'999);
  EXPECT_FALSE(FindRepetition(tokens).has_value());
}

TEST(Repetition, OneTokenAgainAndAgainIsFoundWithItsPlace) {
  std::vector<uint32_t> tokens = Counting(500);
  tokens.insert(tokens.end(), kRepeatTokensMin, 9'999);
  tokens.push_back(1);
  const auto found = FindRepetition(tokens);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->begin, 500u);
  EXPECT_EQ(found->tokens, kRepeatTokensMin);
  EXPECT_EQ(found->period, 1u);
}

TEST(Repetition, ASentenceHasToComeEightTimes) {
  const auto repeated = [](size_t period, size_t times) {
    std::vector<uint32_t> tokens = Counting(300);
    for (size_t i = 0; i < period * times; ++i) {
      tokens.push_back(static_cast<uint32_t>(1'000 + i % period));
    }
    return FindRepetition(tokens);
  };
  EXPECT_FALSE(repeated(40, 7).has_value());
  const auto found = repeated(40, 8);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->period, 40u);
  EXPECT_EQ(found->begin, 300u);
  EXPECT_EQ(found->tokens, 320u);
  EXPECT_TRUE(repeated(kRepeatPeriodMax, 8).has_value());
  EXPECT_FALSE(repeated(kRepeatPeriodMax + 1, 20).has_value());
}

}  // namespace
}  // namespace forebay::ctl
