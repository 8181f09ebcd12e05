#include "curriculum/sum_tree.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace forebay::curriculum {
namespace {

uint32_t NaiveFind(const std::vector<uint32_t>& weights, uint64_t point) {
  uint32_t i = 0;
  while (point >= weights[i]) point -= weights[i++];
  return i;
}

TEST(SumTree, FindsWhatALinearScanFindsAtEverySize) {
  SumTree tree;
  std::vector<uint32_t> weights;
  Prng prng(11);
  for (int step = 0; step < 5000; ++step) {
    const auto weight = static_cast<uint32_t>(prng.Below(4) == 0 ? 0 : prng.Below(1000));
    tree.Append(weight);
    weights.push_back(weight);
    const auto changed = static_cast<uint32_t>(prng.Below(weights.size()));
    weights[changed] = static_cast<uint32_t>(prng.Below(5));
    tree.Set(changed, weights[changed]);
    uint64_t total = 0;
    for (uint32_t w : weights) total += w;
    ASSERT_EQ(tree.total(), total);
    if (total == 0) continue;
    for (uint64_t point : {uint64_t{0}, prng.Below(total), total - 1}) {
      ASSERT_EQ(tree.Find(point), NaiveFind(weights, point)) << "size " << weights.size();
    }
  }
}

TEST(SumTree, IsTheSameWhetherSetAtOnceOrOneByOne) {
  Prng prng(5);
  for (const uint32_t size : {1u, 16u, 17u, 257u, 5'000u}) {
    SumTree at_once, one_by_one;
    std::vector<uint32_t> weights(size);
    for (uint32_t& weight : weights) weight = static_cast<uint32_t>(prng.Below(1'000));
    for (const uint32_t weight : weights) {
      at_once.Append(7);
      one_by_one.Append(weight);
    }
    at_once.SetAll([&](uint32_t i) { return weights[i]; });
    ASSERT_EQ(at_once.total(), one_by_one.total());
    for (int i = 0; i < 100; ++i) {
      const uint64_t point = prng.Below(at_once.total());
      ASSERT_EQ(at_once.Find(point), one_by_one.Find(point)) << size;
    }
    at_once.Set(size - 1, weights[size - 1] + 9);
    EXPECT_EQ(at_once.Find(at_once.total() - 1), size - 1);
  }
}

TEST(SumTree, HoldsTheGreatestWeights) {
  SumTree tree;
  for (int i = 0; i < 100; ++i) tree.Append(UINT32_MAX);
  EXPECT_EQ(tree.total(), uint64_t{100} * UINT32_MAX);
  EXPECT_EQ(tree.Find(tree.total() - 1), 99u);
  EXPECT_EQ(tree.Find(uint64_t{50} * UINT32_MAX), 50u);
}

}  // namespace
}  // namespace forebay::curriculum
