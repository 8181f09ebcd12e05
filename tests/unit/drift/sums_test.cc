#include "drift/sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/prng.h"

namespace forebay::drift {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Sums, HoldTheThreeEstimates) {
  Sums sums;
  sums.Count(-1.0, -1.5);  // d = 0.5
  sums.Count(-2.0, -1.0);  // d = -1
  EXPECT_EQ(sums.tokens, 2);
  EXPECT_DOUBLE_EQ(sums.k1, -0.5 + 1);
  EXPECT_DOUBLE_EQ(sums.k2, 0.125 + 0.5);
  EXPECT_NEAR(sums.k3, 0.1487212707001282 + 0.3678794411714423, 1e-15);
  EXPECT_EQ(sums.MaxAbs(), 1.0f);
  EXPECT_EQ(sums.Mean(sums.k2), 0.3125);
  EXPECT_EQ(WrongField(sums), nullptr);
}

TEST(Sums, CountWhatIsNotFiniteApart) {
  Sums sums;
  sums.Count(kNaN, -1);
  sums.Count(-1, kNaN);
  sums.Count(-kInfinity, -1);
  sums.Count(-1, -kInfinity);
  sums.Count(-kInfinity, -kInfinity);
  EXPECT_EQ(sums.non_finite, 5);
  sums.non_finite = 0;
  EXPECT_EQ(sums, Sums());
}

TEST(Sums, ClampSoThatNoTokenDrownsTheOthers) {
  Sums sums;
  sums.Count(0, -100);
  sums.Count(-100, 0);
  EXPECT_EQ(sums.clamped, 2);
  EXPECT_EQ(sums.k1, 0);
  EXPECT_EQ(sums.k2, 2 * 200);
  EXPECT_NEAR(sums.k3, (std::exp(20.0) - 21) + (std::exp(-20.0) + 19), 1e-6);
  EXPECT_EQ(sums.MaxAbs(), 100.0f);
  EXPECT_EQ(WrongField(sums), nullptr);
  sums.Count(1e300, -1e300);
  EXPECT_EQ(sums.clamped, 3);
  EXPECT_EQ(WrongField(sums), nullptr);
}

TEST(Sums, K3IsNeverNegative) {
  Prng prng(7);
  Sums all;
  for (int i = 0; i < 10'000; ++i) {
    // From the smallest differences to those that are clamped.
    const double d = std::ldexp(1.0 - prng.Unit(), static_cast<int>(prng.Below(70)) - 62);
    Sums one;
    one.Count(prng.Below(2) == 0 ? d : -d, 0);
    EXPECT_GE(one.k3, 0) << d;
    EXPECT_EQ(WrongField(one), nullptr) << d;
    all.Add(one);
  }
  EXPECT_EQ(all.tokens, 10'000);
  EXPECT_EQ(WrongField(all), nullptr);
}

TEST(Sums, FadeAllButTheLargest) {
  Sums sums;
  sums.Count(0, -2);
  sums.Count(kNaN, 0);
  sums.Fade(0.5);
  EXPECT_EQ(sums.tokens, 0.5);
  EXPECT_EQ(sums.k2, 1);
  EXPECT_EQ(sums.non_finite, 0.5);
  EXPECT_EQ(sums.MaxAbs(), 2.0f);
  EXPECT_EQ(sums.Mean(sums.k2), 2);
}

TEST(WrongField, NamesWhatTokensCannotGive) {
  Sums good;
  for (int i = 0; i < 3; ++i) good.Count(-0.5, -1);
  ASSERT_EQ(WrongField(good), nullptr);
  const auto with = [good](auto spoil) {
    Sums sums = good;
    spoil(sums);
    const char* field = WrongField(sums);
    return std::string(field == nullptr ? "" : field);
  };
  EXPECT_EQ(with([](Sums& s) { s.tokens = -1; }), "tokens");
  EXPECT_EQ(with([](Sums& s) { s.tokens = kNaN; }), "tokens");
  EXPECT_EQ(with([](Sums& s) { s.tokens = 1e17; }), "tokens");
  EXPECT_EQ(with([](Sums& s) { s.k1 = 61; }), "k1");
  EXPECT_EQ(with([](Sums& s) { s.k1 = kNaN; }), "k1");
  EXPECT_EQ(with([](Sums& s) { s.k2 = -1e-9; }), "k2");
  EXPECT_EQ(with([](Sums& s) { s.k2 = 601; }), "k2");
  EXPECT_EQ(with([](Sums& s) { s.k3 = -1e-9; }), "k3");
  EXPECT_EQ(with([](Sums& s) { s.k3 = kInfinity; }), "k3");
  EXPECT_EQ(with([](Sums& s) { s.non_finite = -1; }), "non_finite");
  EXPECT_EQ(with([](Sums& s) { s.clamped = 4; }), "clamped");
  EXPECT_EQ(with([](Sums& s) { s.max_abs = -1; }), "max_abs");
  EXPECT_EQ(with([](Sums& s) { s.max_abs = std::numeric_limits<float>::infinity(); }), "max_abs");
  EXPECT_EQ(with([](Sums& s) { s = Sums(); }), "");
}

}  // namespace
}  // namespace forebay::drift
