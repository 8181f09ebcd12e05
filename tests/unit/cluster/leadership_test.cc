#include "cluster/leadership.h"

#include <gtest/gtest.h>

namespace forebay::cluster {
namespace {

using Change = Leadership::Change;
using Machines = std::vector<bool>;

// The ledger, two shards, the contents of tasks.
Leadership New() { return Leadership({true, false, false, true}, 1'000); }

TEST(Leadership, ItLeadsAtOnceWhenAllServe) {
  Leadership leadership = New();
  EXPECT_EQ(leadership.Look(0, Machines{true, true, false, true}), Change::kNone);
  EXPECT_EQ(leadership.Look(10, Machines{true, true, true, true}), Change::kLead);
  EXPECT_TRUE(leadership.leads());
  EXPECT_TRUE(leadership.missing().empty());
  EXPECT_EQ(leadership.Look(20, Machines{true, true, true, true}), Change::kNone);
}

TEST(Leadership, AShardIsWaitedForUntilTheBoundAndThenLeftOut) {
  Leadership leadership = New();
  EXPECT_EQ(leadership.Look(500, Machines{true, true, false, true}), Change::kNone);
  EXPECT_EQ(leadership.Look(1'499, Machines{true, true, false, true}), Change::kNone);
  EXPECT_FALSE(leadership.leads());
  EXPECT_EQ(leadership.Look(1'500, Machines{true, true, false, true}), Change::kLead);
  EXPECT_EQ(leadership.missing(), std::vector<uint32_t>{2});
}

TEST(Leadership, TheLedgerTheContentsAndOneShardAreNeeded) {
  for (const Machines& serving :
       {Machines{false, true, true, true}, Machines{true, true, true, false},
        Machines{true, false, false, true}}) {
    Leadership leadership = New();
    EXPECT_EQ(leadership.Look(0, serving), Change::kNone);
    EXPECT_EQ(leadership.Look(1'000'000, serving), Change::kNone);
  }
}

TEST(Leadership, TheBoundBeginsAnewWhenWhatIsNeededStops) {
  Leadership leadership = New();
  const Machines enough{true, false, true, true};
  EXPECT_EQ(leadership.Look(0, enough), Change::kNone);
  EXPECT_EQ(leadership.Look(900, Machines{false, false, true, true}), Change::kNone);
  EXPECT_EQ(leadership.Look(1'000, enough), Change::kNone);
  EXPECT_EQ(leadership.Look(1'999, enough), Change::kNone);
  EXPECT_EQ(leadership.Look(2'000, enough), Change::kLead);
}

TEST(Leadership, ItSaysWhenWhatItLeadsWithoutServes) {
  Leadership leadership({true, false, false, false, true}, 0);
  EXPECT_EQ(leadership.Look(0, Machines{true, true, false, false, true}), Change::kLead);
  EXPECT_EQ(leadership.missing(), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(leadership.Look(10, Machines{true, true, true, false, true}), Change::kNone);
  EXPECT_EQ(leadership.Look(20, Machines{true, true, true, true, true}), Change::kWhole);
  EXPECT_EQ(leadership.Look(30, Machines{true, true, true, true, true}), Change::kWhole);
  EXPECT_EQ(leadership.Look(40, Machines{true, true, false, true, true}), Change::kNone);
}

}  // namespace
}  // namespace forebay::cluster
