#include "codec/conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/prng.h"

namespace forebay::codec {
namespace {

template <class To, class From>
std::vector<To> Convert(DType from, DType to, const std::vector<From>& values) {
  const Conversion* const conversion = FindConversion(from, to);
  EXPECT_NE(conversion, nullptr);
  if (conversion == nullptr) return {};
  EXPECT_EQ(conversion->from_bytes, sizeof(From));
  EXPECT_EQ(conversion->to_bytes, sizeof(To));
  // At places that are aligned to nothing.
  std::string in(values.size() * sizeof(From) + 1, '\0');
  std::string out(values.size() * sizeof(To) + 2, '#');
  std::memcpy(in.data() + 1, values.data(), in.size() - 1);
  conversion->convert(in.data() + 1, out.data() + 1, values.size());
  EXPECT_EQ(out.front(), '#');
  EXPECT_EQ(out.back(), '#');
  std::vector<To> converted(values.size());
  std::memcpy(converted.data(), out.data() + 1, converted.size() * sizeof(To));
  return converted;
}

float Bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

TEST(Conversion, F32ToBf16RoundsToTheNearestAndTiesToEven) {
  const float one = 1.0f, step = 0.0078125f;  // of bf16 at 1
  const auto bits = Convert<uint16_t, float>(
      DType::kF32, DType::kBf16,
      {one, one + step / 2, one + 1.5f * step, one + 0.51f * step, -one - step / 2, 3.4e38f,
       std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity(), 1e-45f, -0.0f});
  EXPECT_EQ(Bf16(bits[0]), one);
  EXPECT_EQ(Bf16(bits[1]), one);             // a tie: to even
  EXPECT_EQ(Bf16(bits[2]), one + 2 * step);  // a tie: to even
  EXPECT_EQ(Bf16(bits[3]), one + step);
  EXPECT_EQ(Bf16(bits[4]), -one);
  EXPECT_TRUE(std::isinf(Bf16(bits[6])));
  EXPECT_TRUE(std::isinf(Bf16(bits[7])));
  EXPECT_EQ(bits[8], 0u);
  EXPECT_EQ(bits[9], 0x8000u);
}

TEST(Conversion, F32ToBf16IsTheNearestOfAllValues) {
  Prng prng(7);
  std::vector<float> values;
  while (values.size() < 5000) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(prng.Next()));
    if (std::isfinite(value) && std::abs(value) < 3.3e38f) values.push_back(value);
  }
  const auto bits = Convert<uint16_t, float>(DType::kF32, DType::kBf16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    const double distance = std::abs(double{Bf16(bits[i])} - values[i]);
    for (const int step : {-1, 1}) {
      const auto neighbour = static_cast<uint16_t>(bits[i] + step);
      const double other = std::abs(double{Bf16(neighbour)} - values[i]);
      if (!std::isfinite(other)) continue;
      ASSERT_LE(distance, other) << values[i];
      ASSERT_TRUE(distance < other || bits[i] % 2 == 0) << values[i];
    }
  }
}

TEST(Conversion, NanStaysNan) {
  std::vector<float> nans;
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu, 0x7fffffffu, 0xff800001u}) {
    nans.push_back(std::bit_cast<float>(bits));
  }
  const auto narrow = Convert<uint16_t, float>(DType::kF32, DType::kBf16, nans);
  for (size_t i = 0; i < nans.size(); ++i) {
    EXPECT_TRUE(std::isnan(Bf16(narrow[i])));
    EXPECT_EQ(std::signbit(Bf16(narrow[i])), std::signbit(nans[i]));
  }
  for (const float wide : Convert<float, uint16_t>(DType::kF16, DType::kF32, {0x7c01, 0xfe00})) {
    EXPECT_TRUE(std::isnan(wide));
  }
  const auto single = Convert<float, double>(
      DType::kF64, DType::kF32, {std::numeric_limits<double>::quiet_NaN(), 0.1, 1e300});
  EXPECT_TRUE(std::isnan(single[0]));
  EXPECT_EQ(single[1], 0.1f);
  EXPECT_TRUE(std::isinf(single[2]));
}

TEST(Conversion, WideningLosesNothing) {
  EXPECT_EQ((Convert<int32_t, int16_t>(DType::kI16, DType::kI32, {-1, -32768, 32767, 0})),
            (std::vector<int32_t>{-1, -32768, 32767, 0}));
  EXPECT_EQ((Convert<int64_t, uint32_t>(DType::kU32, DType::kI64, {0, ~0u})),
            (std::vector<int64_t>{0, 4294967295}));
  EXPECT_EQ((Convert<int16_t, uint8_t>(DType::kU8, DType::kI16, {255, 1})),
            (std::vector<int16_t>{255, 1}));
  std::vector<uint16_t> all(65536);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto singles = Convert<float, uint16_t>(DType::kF16, DType::kF32, all);
  const auto doubles = Convert<int64_t, uint16_t>(DType::kU16, DType::kI64, all);
  for (uint32_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(doubles[i], i);
    const uint32_t exponent = i >> 10 & 31, mantissa = i & 1023;
    if (exponent == 31) continue;
    const double magnitude = exponent == 0
                                 ? std::ldexp(mantissa, -24)
                                 : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    ASSERT_EQ(singles[i], i >> 15 ? -magnitude : magnitude);
    ASSERT_EQ(std::signbit(singles[i]), i >> 15 == 1);
  }
  const auto back = Convert<float, uint16_t>(DType::kBf16, DType::kF32, all);
  for (uint32_t i = 0; i < all.size(); ++i) ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), i << 16);
}

TEST(Conversion, ThereIsNoneThatLosesMoreThanARounding) {
  EXPECT_EQ(FindConversion(DType::kI32, DType::kI16), nullptr);
  EXPECT_EQ(FindConversion(DType::kI16, DType::kU32), nullptr);
  EXPECT_EQ(FindConversion(DType::kU32, DType::kI32), nullptr);
  EXPECT_EQ(FindConversion(DType::kI32, DType::kF32), nullptr);
  EXPECT_EQ(FindConversion(DType::kF32, DType::kF32), nullptr);
  EXPECT_EQ(FindConversion(DType::kF32, static_cast<DType>(77)), nullptr);
}

}  // namespace
}  // namespace forebay::codec
