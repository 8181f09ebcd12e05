#include "batch/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/prng.h"

namespace forebay::batch {
namespace {

TEST(OrderDescending, AgreesWithAStableSort) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Prng prng(seed);
    std::vector<uint64_t> keys(prng.Below(500));
    const uint64_t shift = prng.Below(64);
    for (uint64_t& key : keys) key = prng.Next() >> shift << prng.Below(4);
    std::vector<uint32_t> expected(keys.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](uint32_t a, uint32_t b) { return keys[a] > keys[b]; });
    ASSERT_EQ(OrderDescending(keys), expected) << "seed " << seed;
  }
}

TEST(OrderDescending, SortsKeysThatDifferInTheHighestBitOnly) {
  const std::vector<uint64_t> keys = {1, uint64_t{1} << 63 | 1, 1};
  EXPECT_EQ(OrderDescending(keys), (std::vector<uint32_t>{1, 0, 2}));
}

}  // namespace
}  // namespace forebay::batch
