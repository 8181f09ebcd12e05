#include "shard/timers.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace forebay::shard {
namespace {

std::vector<uint32_t> TakeDue(Timers<int>& timers, uint64_t now_ms) {
  std::vector<uint32_t> due;
  timers.TakeDue(now_ms, &due);
  return due;
}

TEST(Timers, FireAtTheirTimeAndNotBefore) {
  Timers<int> timers(1000);
  timers.Set(5, 1500);
  timers.Set(700, 1501) = 9;
  EXPECT_TRUE(TakeDue(timers, 1499).empty());
  EXPECT_EQ(TakeDue(timers, 1500), std::vector<uint32_t>{5});
  EXPECT_EQ(*timers.data(700), 9);
  EXPECT_EQ(TakeDue(timers, 1501), std::vector<uint32_t>{700});
  EXPECT_EQ(timers.data(700), nullptr);
  EXPECT_EQ(timers.Next(), Timers<int>::kNever);
}

TEST(Timers, MovingKeepsTheDataAndTheLastTimeCounts) {
  Timers<int> timers(0);
  timers.Set(1, 100) = 3;
  EXPECT_EQ(timers.Set(1, 900), 3);
  EXPECT_TRUE(TakeDue(timers, 899).empty());
  EXPECT_EQ(TakeDue(timers, 900), std::vector<uint32_t>{1});
  EXPECT_EQ(timers.Set(1, 1000), 0);
}

TEST(Timers, OnesThatAreOverdueWhenSetFireAtTheNextLook) {
  Timers<int> timers(5000);
  EXPECT_TRUE(TakeDue(timers, 5000).empty());
  timers.Set(1, 20);
  EXPECT_LE(timers.Next(), 5000 + Timers<int>::kTickMs);
  EXPECT_EQ(TakeDue(timers, 5000), std::vector<uint32_t>{1});
}

// A timer that waits for more than a turn of the wheel is looked at once a turn, and no more.
TEST(Timers, NextGoesOnAfterEachLook) {
  constexpr uint64_t kDueMs = 10 * 60'000;
  Timers<int> timers(0);
  timers.Set(1, kDueMs);
  uint64_t looks = 0, now = 0;
  for (std::vector<uint32_t> due; due.empty(); ++looks) {
    const uint64_t next = timers.Next();
    ASSERT_GT(next, now);
    now = next;
    due = TakeDue(timers, now);
  }
  EXPECT_GE(now, kDueMs);
  EXPECT_LT(now, kDueMs + Timers<int>::kTickMs);
  EXPECT_LE(looks, 10u);
}

TEST(Timers, AgreeWithASortedMap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    uint64_t now = prng.Below(100000);
    Timers<int> timers(now);
    std::map<uint32_t, uint64_t> model;
    for (int i = 0; i < 3000; ++i) {
      const uint32_t slot = static_cast<uint32_t>(prng.Below(prng.Below(2) ? 40 : 100000));
      switch (prng.Below(4)) {
        case 0:
          timers.Cancel(slot);
          model.erase(slot);
          break;
        case 1: {
          const uint64_t step = prng.Below(20) == 0 ? prng.Below(300000) : prng.Below(200);
          now = prng.Below(3) == 0 && timers.Next() != Timers<int>::kNever
                    ? std::max(now, timers.Next())
                    : now + step;
          std::vector<uint32_t> expected;
          for (const auto& [s, due] : model) {
            if (due <= now) expected.push_back(s);
          }
          for (uint32_t s : expected) model.erase(s);
          ASSERT_EQ(TakeDue(timers, now), expected);
          break;
        }
        default: {
          const uint64_t due = now + prng.Below(prng.Below(10) == 0 ? 500000 : 3000);
          timers.Set(slot, due);
          model[slot] = due;
        }
      }
      ASSERT_EQ(timers.size(), model.size());
      uint64_t earliest = Timers<int>::kNever;
      for (const auto& [s, due] : model) earliest = std::min(earliest, due);
      if (model.empty()) {
        ASSERT_EQ(timers.Next(), Timers<int>::kNever);
      } else {
        ASSERT_LE(timers.Next(), std::max(earliest, now) + Timers<int>::kTickMs);
      }
    }
  }
}

}  // namespace
}  // namespace forebay::shard
