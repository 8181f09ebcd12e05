#include "node/kept_bytes.h"

#include <gtest/gtest.h>

namespace forebay::node {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(KeptBytes, AllMayStayWhileLittleIsPinned) {
  EXPECT_EQ(KeptBytesMax(500, 0, 16 * kGiB), 500u);
  EXPECT_EQ(KeptBytesMax(kGiB, 16 * kGiB, 16 * kGiB), kGiB);
}

TEST(KeptBytes, AboveThatAsMuchOfItAsPinsWhatMayBe) {
  EXPECT_EQ(KeptBytesMax(100, 4'000, 1'000), 25u);
  EXPECT_EQ(KeptBytesMax(kGiB, 32 * kGiB, 16 * kGiB), kGiB / 2);
  EXPECT_EQ(KeptBytesMax(0, 2'000, 1'000), 0u);
}

// A sample of 1% in files that are written one after another: with each step new ones are kept, and
// the oldest go.
TEST(KeptBytes, WhatIsPinnedComesToItsLimitAndStaysThere) {
  uint64_t kept = 0;
  const uint64_t pinned_max = PinnedBytesMax(kGiB, kGiB / 4, 0);
  for (int step = 0; step < 1'000; ++step) {
    const uint64_t pinned = kept * 99;
    const uint64_t most = pinned > pinned_max ? KeptBytesMax(kept, pinned, pinned_max) : kGiB;
    kept = std::min(kept + kGiB / 100, most);
    if (step > 100) {
      EXPECT_LE(kept * 99, pinned_max + 2 * kGiB) << step;
      EXPECT_GE(kept * 99, pinned_max - 2 * kGiB) << step;
    }
  }
}

TEST(KeptBytes, SomeFilesMayAlwaysBePinned) {
  EXPECT_EQ(PinnedBytesMax(kGiB, kGiB / 4, kGiB), 16 * kGiB);
  EXPECT_EQ(PinnedBytesMax(1, kGiB / 4, kGiB), 2 * kGiB);
  EXPECT_EQ(PinnedBytesMax(kGiB, kGiB / 4, 1'000 * kGiB), 500 * kGiB);
  EXPECT_EQ(PinnedBytesMax(UINT64_MAX, kGiB, 0), UINT64_MAX);
}

}  // namespace
}  // namespace forebay::node
