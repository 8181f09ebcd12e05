// The rules of a backup, each by itself.
#include <gtest/gtest.h>

#include "tests/unit/replication/harness.h"

namespace forebay::replication {
namespace {

// Of the primary, node 2.
Append From(LogPlace before, std::vector<Entry> entries, uint64_t committed, uint64_t reign_start) {
  return {before, std::move(entries), LogPosition(committed), LogPosition(reign_start), {}};
}

// A backup of node 2 in epoch 2 with a log of epoch 1 up to position 5.
Harness Follower() {
  Recovered recovered;
  for (const char* command : {"", "a", "b", "c", "d"}) recovered.entries.push_back(Of(1, command));
  Harness h(std::move(recovered));
  h.Configure(Config(2, 2, {1, 2, 3}));
  return h;
}

TEST(Backup, SaysWhatIsMatchedAndSyncedAndNoMore) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 3), {}, 0, 6));
  EXPECT_EQ(h.Said<Appended>(kTwo), (Appended{true, LogPosition(3), LogPosition(3)}));
  h.Hear(kTwo, 2, From(At(1, 3), {Of(1, "c"), Of(1, "d"), Of(2, "")}, 0, 6));
  EXPECT_EQ(h.Said<Appended>(kTwo), (Appended{true, LogPosition(5), LogPosition(6)}));
  ASSERT_EQ(h.output.log.size(), 1u);  // what it had is not written again
  h.SyncAll();
  EXPECT_EQ(h.Said<Appended>(kTwo), (Appended{true, LogPosition(6), LogPosition(6)}));
}

TEST(Backup, SaysWhereItIsWhenItDoesNotMatch) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 9), {}, 0, 10));
  EXPECT_EQ(h.Said<Appended>(kTwo), (Appended{false, LogPosition(0), LogPosition(5)}));
  Harness other = Follower();
  other.Hear(kTwo, 3, From(At(2, 4), {}, 0, 6));
  EXPECT_EQ(other.Said<Appended>(kTwo), (Appended{false, LogPosition(0), LogPosition(0)}));
}

TEST(Backup, CutsWhatThePrimaryHasNot) {
  Harness h = Follower();
  // The primary's reign began at 5: what is there is of an earlier one, and not the primary's.
  h.Hear(kTwo, 2, From(At(1, 2), {}, 0, 5));
  ASSERT_EQ(h.output.log.size(), 1u);
  EXPECT_EQ(std::get<TruncateLog>(h.output.log[0].what).from, LogPosition(5));
  EXPECT_EQ(h.replica.log().last(), At(1, 4));
  // And what differs goes, with all that follows.
  h.Hear(kTwo, 2, From(At(1, 2), {Of(2, "x")}, 0, 3));
  EXPECT_EQ(h.replica.log().last(), At(2, 3));
}

TEST(Backup, KeepsWhatThePrimaryHasNotSentYet) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 1), {Of(1, "a")}, 0, 6));
  EXPECT_EQ(h.replica.log().last(), At(1, 5));
  EXPECT_TRUE(h.output.log.empty());
}

TEST(Backup, ASyncFromBeforeACutSaysNothing) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 5), {Of(2, ""), Of(2, "x")}, 0, 6));
  const LogGeneration before = h.generation;
  h.Hear(kThree, 3, From(At(1, 5), {Of(3, ""), Of(3, "y")}, 0, 6));
  h.replica.OnSynced(before, LogPosition(7), h.now);
  EXPECT_EQ(h.replica.synced(), LogPosition(5));
  h.SyncAll();
  EXPECT_EQ(h.replica.synced(), LogPosition(7));
}

TEST(Backup, FollowsNoEarlierEpoch) {
  Harness h = Follower();
  h.Hear(kThree, 1, From(At(1, 5), {Of(1, "late")}, 5, 1));
  EXPECT_EQ(h.replica.log().last(), At(1, 5));
  EXPECT_EQ(h.committed(), 0u);
  // The old primary hears of the later epoch.
  EXPECT_TRUE(h.Said<Hello>(kThree));
  EXPECT_EQ(h.output.messages.at(0).second.epoch, Epoch(2));
}

TEST(Backup, ALogOfAnEpochIsAPromiseToo) {
  Recovered recovered;
  recovered.entries = {Of(1, ""), Of(3, "")};
  Harness h(std::move(recovered));
  h.Configure(Config(2, 2, {1, 2, 3}));  // old news
  h.Hear(kTwo, 2, From(At(1, 1), {Of(2, "late")}, 2, 2));
  EXPECT_EQ(h.replica.log().last(), At(3, 2));
}

TEST(Backup, CommitsWhatIsMatched) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 3), {}, 5, 6));
  EXPECT_EQ(h.committed(), 3u);
  h.Hear(kTwo, 2, From(At(1, 3), {Of(1, "c")}, 5, 6));
  EXPECT_EQ(h.committed(), 4u);
}

TEST(Backup, StopsRatherThanCutWhatIsCommitted) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 4), {}, 4, 6));
  ASSERT_EQ(h.committed(), 4u);
  h.Hear(kThree, 3, From(At(1, 1), {}, 1, 3));
  EXPECT_TRUE(h.output.failure);
  EXPECT_TRUE(h.replica.failed());
  EXPECT_EQ(h.replica.log().last(), At(1, 5));
}

TEST(Backup, StopsWhenItsStateIsNotThePrimarys) {
  Harness h = Follower();
  Append append = From(At(1, 5), {}, 5, 6);
  append.hash = StateHash{LogPosition(4), 77};
  h.Hear(kTwo, 2, append);
  for (uint64_t p = 1; p <= 3; ++p) h.Apply(p);
  EXPECT_FALSE(h.replica.failed());
  h.Apply(4, 78);
  h.Look();
  EXPECT_TRUE(h.output.failure);
}

TEST(Backup, TakesOverFromASilentPrimaryAndLeavesItOut) {
  Harness h = Follower();
  h.Silence(550);
  EXPECT_TRUE(h.output.swaps.empty());
  h.Silence(500);
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next, Config(3, 1, {1, 3}));
}

TEST(Backup, APauseOfItsOwnIsNotThePrimarysSilence) {
  Harness h = Follower();
  h.Tick(30'000);
  EXPECT_TRUE(h.output.swaps.empty());
  h.Hear(kTwo, 2, From(At(1, 5), {}, 5, 6));
  h.Silence(500);
  EXPECT_TRUE(h.output.swaps.empty());
}

TEST(Backup, OutOfSyncNeverTakesOver) {
  Harness h = Follower();
  h.Configure(Config(2, 2, {2, 3}));
  h.Silence(60'000);
  EXPECT_TRUE(h.output.swaps.empty());
}

TEST(Backup, UnderAnotherIncarnationIsOutOfSync) {
  Harness h({}, {kOne, Incarnation(2), Incarnation(2)});  // the log was lost
  h.Configure(Config(2, 2, {1, 2}));
  h.Silence(60'000);
  EXPECT_TRUE(h.output.swaps.empty());
}

TEST(Backup, TakesOverAtOnceWhenItIsAsked) {
  Harness h = Follower();
  h.Hear(kTwo, 2, From(At(1, 5), {}, 5, 6));
  h.Hear(kTwo, 2, TakeOver{});
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next, Config(3, 1, {1, 2, 3}));  // the old one stays in sync
}

TEST(Backup, PausedItSuspectsNobodyUntilThatEnds) {
  Harness h = Follower();
  h.replica.SetPaused(true);
  h.Silence(20'000);
  EXPECT_TRUE(h.output.swaps.empty());
  h.replica.SetPaused(false);
  h.Tick(50);
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next, Config(3, 1, {1, 3}));
}

// Ticks until it asks to be the primary.
uint64_t PatienceOf(Harness& h) {
  const uint64_t begin = h.now;
  while (h.output.swaps.empty() && h.now < begin + 20'000) h.Tick(10);
  return h.now - begin;
}

TEST(Backup, HasMorePatienceAfterEachShortReign) {
  Harness h = Follower();
  uint64_t epoch = 2;
  const auto next_reign = [&](uint64_t after_ms) {
    for (const uint64_t until = h.now + after_ms; h.now < until;) {
      h.Tick(50);
      h.Hear(kTwo, epoch, From(At(1, 5), {}, 5, 6));
    }
    h.Configure(Config(++epoch, 2, {1, 2, 3}));
    Harness patient = h;
    return PatienceOf(patient);
  };
  const uint64_t first = next_reign(10'000);
  EXPECT_GT(first, Options().suspect_ms);
  EXPECT_LT(first, 2 * Options().suspect_ms);
  const uint64_t second = next_reign(1'000);
  EXPECT_EQ(second, first + Options().suspect_ms);
  const uint64_t third = next_reign(1'000);
  EXPECT_EQ(third, first + 3 * Options().suspect_ms);
  for (int i = 0; i < 5; ++i) next_reign(100);
  EXPECT_EQ(next_reign(100), first + 7 * Options().suspect_ms);
  EXPECT_EQ(next_reign(Options().short_reign_ms), first);  // one that lasted
}

TEST(Backup, PausedItTakesOverWhenThePrimaryAsksOrAnOperatorHasNamedIt) {
  Harness asked = Follower();
  asked.replica.SetPaused(true);
  asked.Hear(kTwo, 2, From(At(1, 5), {}, 5, 6));
  asked.Hear(kTwo, 2, TakeOver{});
  ASSERT_EQ(asked.output.swaps.size(), 1u);
  EXPECT_EQ(asked.output.swaps[0].next, Config(3, 1, {1, 2, 3}));

  Harness named = Follower();
  named.replica.SetPaused(true);
  named.Configure(Config(3, 1, {1, 3}));
  named.Silence(2'000);
  ASSERT_EQ(named.output.swaps.size(), 1u);
  EXPECT_EQ(named.output.swaps[0].next, Config(4, 1, {1, 3}));
}

// --- A log that was cut ---

Harness Cut() {
  Recovered recovered;
  recovered.entries = {Of(1, ""), Of(1, "a"), Of(1, "b")};
  Harness h(std::move(recovered), {kOne, Incarnation(2), Incarnation(1)});
  h.Configure(Config(1, 2, {1, 2, 3}));
  return h;
}

bool TakesOver(Harness& h, const Hello& two, uint64_t two_incarnation, const Hello& three,
               uint64_t three_incarnation) {
  for (int i = 0; i < 40; ++i) {
    h.Hear(kTwo, 1, two, two_incarnation);
    h.Hear(kThree, 1, three, three_incarnation);
    h.Tick(50);
    if (!h.output.swaps.empty()) return true;
  }
  return false;
}

TEST(CutLog, WaitsForMembersThatAreNotHeard) {
  Harness h = Cut();
  h.Silence(60'000);
  EXPECT_TRUE(h.output.swaps.empty());
}

TEST(CutLog, LeavesItToAMemberThatIsWhole) {
  Harness h = Cut();
  const Hello less{Incarnation(1), At(1, 1)};
  EXPECT_FALSE(TakesOver(h, less, /*two_incarnation=*/1, less, 2));
}

TEST(CutLog, LeavesItToAMemberThatHasMore) {
  Harness h = Cut();
  EXPECT_FALSE(TakesOver(h, {Incarnation(1), At(1, 4)}, 2, {Incarnation(1), At(1, 1)}, 2));
}

TEST(CutLog, LeadsWhenAllOthersWereCutTooOrAreLost) {
  Harness h = Cut();
  ASSERT_TRUE(TakesOver(h, {Incarnation(1), At(1, 3)}, 2, {Incarnation(2), At(0, 0)}, 2));
  Configuration next = Config(2, 1, {1, 2, 3});
  next.incarnations[kOne] = Incarnation(2);
  EXPECT_EQ(h.output.swaps[0].next, next);
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps[0].id);
  ASSERT_EQ(h.output.roles.size(), 1u);
  EXPECT_TRUE(h.output.roles[0].from_cut_log);
}

TEST(CutLog, LeadsWithWhatIsSyncedAlone) {
  Harness h = Cut();
  h.Hear(kTwo, 1, From(At(1, 3), {Of(1, "c")}, 0, 1));
  const Hello less{Incarnation(1), At(1, 3)};
  EXPECT_FALSE(TakesOver(h, less, 2, less, 2));
  h.SyncAll();
  EXPECT_TRUE(TakesOver(h, less, 2, less, 2));
}

// --- Snapshots ---

TEST(Backup, GoesOnFromASnapshot) {
  Harness h = Follower();
  EXPECT_TRUE(h.replica.WantsSnapshot(At(2, 9)));
  h.replica.OnSnapshotInstalled(At(2, 9), h.now);
  h.Look();
  ASSERT_EQ(h.output.log.size(), 1u);
  EXPECT_EQ(std::get<RestartLog>(h.output.log[0].what).base, At(2, 9));
  EXPECT_EQ(h.committed(), 9u);
  EXPECT_FALSE(h.replica.WantsSnapshot(At(2, 9)));
  h.Hear(kTwo, 2, From(At(2, 9), {Of(2, "x")}, 9, 6));
  EXPECT_EQ(h.replica.log().last(), At(2, 10));
}

TEST(Backup, ASnapshotMayBeTheFirstWordOfAReign) {
  Harness h = Follower();
  h.replica.OnSnapshotInstalled(At(4, 9), h.now);
  EXPECT_EQ(h.replica.epoch(), Epoch(4));
  h.Hear(kTwo, 2, From(At(1, 5), {Of(2, "late")}, 6, 6));
  EXPECT_EQ(h.replica.log().last(), At(4, 9));
}

TEST(Backup, WithoutAPrimaryTellsTheOthersWhatItHas) {
  Harness h = Follower();
  h.Silence(350);
  EXPECT_EQ(h.Said<Hello>(kThree), (Hello{Incarnation(1), At(1, 5)}));
}

}  // namespace
}  // namespace forebay::replication
