#include "replication/entry_log.h"

#include <gtest/gtest.h>

#include "replication/options.h"
#include "tests/unit/replication/harness.h"

namespace forebay::replication {
namespace {

EntryLog Five() {
  return EntryLog(At(1, 10), {Of(1, "a"), Of(1, "bb"), Of(2, ""), Of(2, "c"), Of(4, "")});
}

TEST(EntryLog, KnowsItsPlaces) {
  const EntryLog log = Five();
  EXPECT_EQ(log.last(), At(4, 15));
  EXPECT_EQ(log.EpochAt(LogPosition(10)), Epoch(1));
  EXPECT_EQ(log.At(LogPosition(12)), Of(1, "bb"));
  EXPECT_TRUE(log.Has(At(1, 10)));
  EXPECT_TRUE(log.Has(At(2, 13)));
  EXPECT_FALSE(log.Has(At(1, 13)));
  EXPECT_FALSE(log.Has(At(1, 9)));
  EXPECT_FALSE(log.Has(At(4, 16)));
  EXPECT_EQ(log.BytesBetween(LogPosition(10), LogPosition(12)), 3 + 2 * kEntryOverheadBytes);
  EXPECT_EQ(log.BytesBetween(LogPosition(12), LogPosition(12)), 0u);
}

TEST(EntryLog, IsCutAtBothEnds) {
  EntryLog log = Five();
  log.TruncateFrom(LogPosition(14));
  EXPECT_EQ(log.last(), At(2, 13));
  log.Append(Of(3, "dd"));
  log.TrimTo(LogPosition(12));
  EXPECT_EQ(log.base(), At(1, 12));
  EXPECT_EQ(log.BytesBetween(LogPosition(12), LogPosition(14)), 2 + 2 * kEntryOverheadBytes);
  log.TruncateFrom(LogPosition(13));
  EXPECT_EQ(log.last(), At(1, 12));
  log.Append(Of(3, "e"));
  EXPECT_EQ(log.BytesBetween(LogPosition(12), LogPosition(13)), 1 + kEntryOverheadBytes);
}

TEST(EntryLog, BeginsAnewWithWhatFollowsIfItHasThePlace) {
  EntryLog log = Five();
  log.Restart(At(2, 13));
  EXPECT_EQ(log.base(), At(2, 13));
  EXPECT_EQ(log.last(), At(4, 15));
  log.Restart(At(5, 14));
  EXPECT_EQ(log.base(), At(5, 14));
  EXPECT_EQ(log.last(), At(5, 14));
  log.Append(Of(5, "x"));
  EXPECT_EQ(log.BytesBetween(LogPosition(14), LogPosition(15)), 1 + kEntryOverheadBytes);
}

}  // namespace
}  // namespace forebay::replication
