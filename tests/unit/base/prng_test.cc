#include "base/prng.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace forebay {
namespace {

// The first outputs of the published SplitMix64 for these seeds: replicas on all machines must draw
// the same.
TEST(Prng, GivesThePublishedSequence) {
  Prng zero(0);
  EXPECT_EQ(zero.Next(), 0xe220a8397b1dcdafull);
  EXPECT_EQ(zero.Next(), 0x6e789e6aa1b965f4ull);
  EXPECT_EQ(zero.Next(), 0x06c45d188009454full);
  Prng other(1234567);
  EXPECT_EQ(other.Next(), 6457827717110365317ull);
  EXPECT_EQ(other.Next(), 3203168211198807973ull);
}

TEST(Prng, ContinuesFromASavedState) {
  Prng first(42);
  first.Next();
  Prng second;
  second.set_state(first.state());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(first.Next(), second.Next());
  }
}

TEST(Prng, DrawsEveryValueBelowTheBoundAboutEquallyOften) {
  constexpr int kDraws = 70'000;
  std::array<int, 7> counts{};
  Prng prng(7);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = prng.Below(counts.size());
    ASSERT_LT(value, counts.size());
    ++counts[value];
  }
  for (const int count : counts) {
    // Ten standard deviations of a binomial around its mean.
    EXPECT_NEAR(count, kDraws / 7, 10 * 93);
  }
}

TEST(Prng, BelowOneIsZero) {
  Prng prng(8);
  EXPECT_EQ(prng.Below(1), 0u);
}

TEST(Prng, UnitStaysInTheHalfOpenIntervalWithMeanOneHalf) {
  Prng prng(9);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = prng.Unit();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.01);
}

}  // namespace
}  // namespace forebay
