#include "curriculum/index_set.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/prng.h"
#include "codec/snapshot_parts.h"

namespace forebay::curriculum {
namespace {

TEST(IndexSet, FindsTheNextMemberAcrossEmptyStretches) {
  IndexSet set;
  set.Resize(1'000'000);
  EXPECT_EQ(set.Next(0), std::nullopt);
  for (uint32_t i : {0u, 63u, 64u, 4095u, 4096u, 262'143u, 262'144u, 999'999u}) {
    EXPECT_TRUE(set.Insert(i));
    EXPECT_FALSE(set.Insert(i));
  }
  EXPECT_EQ(set.count(), 8u);
  EXPECT_EQ(set.Next(0), 0u);
  EXPECT_EQ(set.Next(1), 63u);
  EXPECT_EQ(set.Next(65), 4095u);
  EXPECT_EQ(set.Next(4097), 262'143u);
  EXPECT_EQ(set.Next(262'145), 999'999u);
  EXPECT_TRUE(set.Erase(999'999));
  EXPECT_FALSE(set.Erase(999'999));
  EXPECT_EQ(set.Next(262'145), std::nullopt);
  EXPECT_EQ(set.Next(1'000'000), std::nullopt);
}

TEST(IndexSet, AgreesWithASortedSetWhileItGrows) {
  IndexSet set;
  std::set<uint32_t> model;
  Prng prng(5);
  uint32_t size = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (step % 4 == 0) set.Resize(size += prng.Below(3) == 0 ? 50 : 1);
    const auto i = static_cast<uint32_t>(prng.Below(size));
    if (prng.Below(3) == 0) {
      ASSERT_EQ(set.Insert(i), model.insert(i).second);
    } else {
      ASSERT_EQ(set.Erase(i), model.erase(i) == 1);
    }
    const auto from = static_cast<uint32_t>(prng.Below(size));
    const auto next = model.lower_bound(from);
    ASSERT_EQ(set.Next(from), next == model.end() ? std::nullopt : std::optional(*next));
    ASSERT_EQ(set.Contains(from), model.contains(from));
    ASSERT_EQ(set.count(), model.size());
  }
}

TEST(IndexSet, ASnapshotIsOfItsMomentWhileTheSetGoesOn) {
  IndexSet set;
  set.Resize(100'000);
  for (uint32_t i = 0; i < set.size(); i += 3) set.Insert(i);
  std::string now, later;
  codec::Writer writer(&now);
  set.Snapshot(writer);
  EXPECT_EQ(now.size(), set.words() * sizeof(uint64_t));
  codec::Parts parts;
  set.Snapshot(parts.writer());
  IndexSet other;
  other.Resize(set.size());
  other.Insert(7);
  set.CopyFrom(other);
  EXPECT_EQ(set.Next(0), 7u);
  EXPECT_EQ(set.Next(8), std::nullopt);
  EXPECT_EQ(set.count(), 1u);
  while (codec::Piece piece = parts.Next()) piece(&later);
  EXPECT_EQ(later, now);
}

}  // namespace
}  // namespace forebay::curriculum
