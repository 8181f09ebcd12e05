#include "batch/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"

namespace forebay::batch {
namespace {

struct Table {
  uint32_t owners, slots, capacity;
  std::vector<uint32_t> sizes;
  std::vector<uint64_t> costs;

  explicit Table(uint64_t seed) {
    Prng prng(seed);
    owners = static_cast<uint32_t>(1 + prng.Below(9));
    slots = static_cast<uint32_t>(1 + prng.Below(9));
    capacity = static_cast<uint32_t>(10 + prng.Below(100));
    sizes.resize(1 + prng.Below(150));
    for (uint32_t& size : sizes) size = static_cast<uint32_t>(1 + prng.Below(capacity));
    std::sort(sizes.rbegin(), sizes.rend());
    for (const uint32_t size : sizes) costs.push_back(30 * size + uint64_t{size} * size);
  }
  Dealer MakeDealer() const { return Dealer(sizes, costs, owners, slots, capacity); }

  void ExpectConsistent(const Dealer& dealer, size_t dealt) const {
    std::vector<uint64_t> loads(owners);
    std::vector<uint64_t> tokens(size_t{owners} * slots);
    for (size_t item = 0; item < dealt; ++item) {
      ASSERT_LT(dealer.owner(item), owners);
      ASSERT_LT(dealer.slot(item), slots);
      loads[dealer.owner(item)] += costs[item];
      tokens[dealer.owner(item) * slots + dealer.slot(item)] += sizes[item];
    }
    for (uint32_t owner = 0; owner < owners; ++owner) ASSERT_EQ(dealer.load(owner), loads[owner]);
    for (const uint64_t in_slot : tokens) ASSERT_LE(in_slot, capacity);
  }
};

TEST(Dealer, KeepsCapacitiesInEveryPassAndLevellingNeverRaisesTheHeaviest) {
  int all = 0, some = 0, levelled = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const Table table(seed);
    Dealer dealer = table.MakeDealer();
    const size_t dealt = dealer.Deal();
    table.ExpectConsistent(dealer, dealt);
    if (dealt < table.sizes.size()) {
      ++some;
      continue;
    }
    ++all;
    const uint64_t before = dealer.HeaviestLoad();
    dealer.Level(0);
    table.ExpectConsistent(dealer, dealt);
    ASSERT_LE(dealer.HeaviestLoad(), before);
    levelled += dealer.HeaviestLoad() < before;
    const uint64_t most = dealer.HeaviestLoad() + 50;
    dealer.FillSlots(most);
    table.ExpectConsistent(dealer, dealt);
    ASSERT_LE(dealer.HeaviestLoad(), most);
  }
  EXPECT_GT(all, 500);
  EXPECT_GT(some, 500);
  EXPECT_GT(levelled, 200);
}

TEST(Dealer, StopsOnlyAtAnItemThatFitsIntoNoBin) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Table table(seed);
    Dealer dealer = table.MakeDealer();
    const size_t dealt = dealer.Deal();
    if (dealt == table.sizes.size()) continue;
    std::vector<uint32_t> tokens(size_t{table.owners} * table.slots);
    for (size_t item = 0; item < dealt; ++item) {
      tokens[dealer.owner(item) * table.slots + dealer.slot(item)] += table.sizes[item];
    }
    for (const uint32_t in_slot : tokens) ASSERT_GT(in_slot + table.sizes[dealt], table.capacity);
  }
}

TEST(Dealer, FindsRoomForAllWithAsManyBinsAsItems) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Table table(seed);
    const size_t bins = size_t{table.owners} * table.slots;
    if (table.sizes.size() > bins) {
      table.sizes.resize(bins);
      table.costs.resize(bins);
    }
    Dealer dealer = table.MakeDealer();
    ASSERT_EQ(dealer.Deal(), table.sizes.size()) << "seed " << seed;
  }
}

TEST(Dealer, ExchangesWholeBinsWhereNoItemFitsAlone) {
  // Dealt {10} {6, 4} and {9, 1} {7}. Items alone cannot level these: the 10 fits only where the
  // light owner's whole bin {9, 1} leaves.
  const std::vector<uint32_t> sizes = {10, 9, 7, 6, 4, 1};
  const std::vector<uint64_t> costs = {100, 81, 49, 36, 16, 1};
  Dealer dealer(sizes, costs, 2, 2, 10);
  ASSERT_EQ(dealer.Deal(), sizes.size());
  EXPECT_EQ(dealer.HeaviestLoad(), 152);
  dealer.Level(0);
  EXPECT_EQ(dealer.HeaviestLoad(), 149);
}

TEST(Dealer, FillsEmptySlotsWithTheCheapestItemsOfOthers) {
  const std::vector<uint32_t> sizes = {9, 3, 3, 2, 1};
  const std::vector<uint64_t> costs = {90, 30, 30, 20, 10};
  Dealer dealer(sizes, costs, 2, 2, 10);
  ASSERT_EQ(dealer.Deal(), sizes.size());
  ASSERT_EQ(dealer.load(0), 90);
  dealer.FillSlots(95);
  EXPECT_EQ(dealer.load(0), 90);
  dealer.FillSlots(100);
  EXPECT_EQ(dealer.load(0), 100);
  EXPECT_EQ(dealer.owner(4), 0);
  EXPECT_NE(dealer.slot(4), dealer.slot(0));
}

}  // namespace
}  // namespace forebay::batch
