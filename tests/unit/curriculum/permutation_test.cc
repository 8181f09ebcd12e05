#include "curriculum/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace forebay::curriculum {
namespace {

TEST(Permutation, HitsEachValueOnceForEverySmallSize) {
  for (uint32_t size = 1; size <= 300; ++size) {
    const Permutation permutation(size * 31, size);
    std::vector<bool> seen(size);
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t value = permutation.At(i);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]);
      seen[value] = true;
    }
  }
}

TEST(Permutation, HitsEachValueOnceForABigSize) {
  constexpr uint32_t kSize = 1'000'003;
  const Permutation permutation(99, kSize);
  std::vector<bool> seen(kSize);
  for (uint32_t i = 0; i < kSize; ++i) {
    const uint32_t value = permutation.At(i);
    ASSERT_LT(value, kSize);
    ASSERT_FALSE(seen[value]);
    seen[value] = true;
  }
}

// Positions against values, over many keys: each pair is about equally frequent.
TEST(Permutation, SpreadsEachPositionOverAllValues) {
  constexpr int kKeys = 20'000;
  for (const uint32_t size : {5u, 10u, 20u, 100u}) {
    std::vector<int> counts(size * size);
    for (int key = 0; key < kKeys; ++key) {
      const Permutation permutation(Mix64(key), size);
      for (uint32_t i = 0; i < size; ++i) ++counts[i * size + permutation.At(i)];
    }
    double chi_square = 0;
    const double expected = double{kKeys} / size;
    for (int count : counts) chi_square += (count - expected) * (count - expected) / expected;
    const double degrees = (size - 1) * (size - 1);
    EXPECT_LT(chi_square, degrees + 5 * std::sqrt(2 * degrees)) << "size " << size;
  }
}

}  // namespace
}  // namespace forebay::curriculum
