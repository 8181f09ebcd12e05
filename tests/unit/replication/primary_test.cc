// The rules of a primary, each by itself.
#include <gtest/gtest.h>

#include "tests/unit/replication/harness.h"

namespace forebay::replication {
namespace {

TEST(Primary, ReignsOnlyWhenItsOwnSwapWasDone) {
  Harness h;
  h.Configure(Config(0, 0, {1, 2, 3}));
  h.Silence(2'000);
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next.epoch, Epoch(1));
  EXPECT_EQ(h.output.swaps[0].next.primary, kOne);
  // The value that it asked for stands there, but whose it is cannot be known.
  h.AnswerSwap(SwapOutcome::kUnknown, h.output.swaps[0].id);
  h.Configure(Config(1, 1, {1, 2, 3}));
  EXPECT_EQ(h.replica.role(), Role::kBackup);
  h.Silence(2'000);
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next.epoch, Epoch(2));
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps[0].id);
  EXPECT_EQ(h.replica.role(), Role::kPrimary);
  EXPECT_EQ(h.replica.epoch(), Epoch(2));
}

TEST(Primary, AReignThatIsOverBeforeItsSwapIsAnsweredDoesNotBegin) {
  Harness h;
  h.Configure(Config(0, 0, {1, 2, 3}));
  h.Silence(2'000);
  const uint64_t id = h.output.swaps.at(0).id;
  h.replica.OnConfiguration(ConfigurationRevision(7), Config(2, 2, {2, 3}), h.now);
  h.replica.OnSwapAnswer({id, SwapOutcome::kDone, ConfigurationRevision(2), {}}, h.now);
  EXPECT_EQ(h.replica.role(), Role::kBackup);
  EXPECT_EQ(h.replica.epoch(), Epoch(2));
}

TEST(Primary, ServesAfterAnEntryOfItsOwnIsCommittedAndApplied) {
  Harness h;
  h.Configure(Config(0, 0, {1, 2, 3}));
  h.Silence(2'000);
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps.at(0).id);
  ASSERT_EQ(h.output.log.size(), 1u);
  EXPECT_EQ(std::get<AppendEntry>(h.output.log[0].what).entry, Of(1, ""));
  EXPECT_EQ(h.Propose("too early"), 0u);
  h.SyncAll();
  h.Acknowledge(kTwo, 1);
  EXPECT_FALSE(h.replica.serving());
  h.Acknowledge(kThree, 1);
  EXPECT_TRUE(h.replica.serving());
  EXPECT_EQ(h.Propose("a"), 2u);
}

TEST(Primary, CommitsWhatEveryMemberAndItselfHaveSynced) {
  Harness h;
  h.Reign();
  ASSERT_EQ(h.Propose("a"), 2u);
  h.Acknowledge(kTwo, 2);
  h.Acknowledge(kThree, 2);
  EXPECT_EQ(h.committed(), 1u);  // its own disk is the last
  h.SyncAll();
  EXPECT_EQ(h.committed(), 2u);
  ASSERT_EQ(h.Propose("b"), 3u);
  h.SyncAll();
  h.Acknowledge(kTwo, 3);
  EXPECT_EQ(h.committed(), 2u);
  h.Acknowledge(kThree, 3);
  EXPECT_EQ(h.committed(), 3u);
}

TEST(Primary, CountsOnlyTheIncarnationThatIsInSync) {
  Harness h;
  h.Reign();
  h.Propose("a");
  h.SyncAll();
  h.Acknowledge(kTwo, 2);
  h.Acknowledge(kThree, 2, /*incarnation=*/2);
  EXPECT_EQ(h.committed(), 1u);
}

TEST(Primary, TakesALaggardOutBeforeItCommitsWithoutIt) {
  Harness h;
  h.Reign();
  h.Propose("a");
  h.SyncAll();
  std::optional<Swap> swap;
  for (int i = 0; i < 20 && !swap; ++i) {
    h.Tick();
    if (!h.output.swaps.empty()) swap = h.output.swaps[0];
    h.Acknowledge(kTwo, 2);  // and nothing of node 3
  }
  ASSERT_TRUE(swap);
  EXPECT_EQ(swap->next, Config(1, 1, {1, 2}));
  EXPECT_EQ(h.committed(), 1u);
  h.AnswerSwap(SwapOutcome::kDone, swap->id);
  EXPECT_EQ(h.committed(), 2u);
}

TEST(Primary, WaitsForBothSetsWhileAChangeIsUnknown) {
  Harness h;
  h.Reign();
  std::optional<Swap> swap;
  for (int i = 0; i < 20 && !swap; ++i) {
    h.Tick();
    if (!h.output.swaps.empty()) swap = h.output.swaps[0];
    h.Acknowledge(kTwo, 1);
  }
  ASSERT_TRUE(swap);
  h.AnswerSwap(SwapOutcome::kUnknown, swap->id);
  h.Propose("a");
  h.SyncAll();
  h.Acknowledge(kTwo, 2);
  EXPECT_EQ(h.committed(), 1u);  // node 3 may still be in the set
  h.Acknowledge(kThree, 2);
  EXPECT_EQ(h.committed(), 2u);
  // It asks for the same again, and only for that.
  h.Silence(1'000);
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next, swap->next);
  EXPECT_EQ(h.output.swaps[0].base, swap->base);
}

TEST(Primary, NeverLeavesFewerThanTheMinimumInSync) {
  Harness h;
  h.Reign();
  h.Silence(5'000);  // of both others
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next.in_sync.size(), 2u);
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps[0].id);
  h.Silence(5'000);
  EXPECT_TRUE(h.output.swaps.empty());
  h.Propose("a");
  h.SyncAll();
  EXPECT_EQ(h.committed(), 1u);
}

TEST(Primary, LetsAReplicaJoinThatHasEverything) {
  Harness h;
  h.Reign();
  h.Configure(Config(1, 1, {1, 2}));
  h.Propose("a");
  h.SyncAll();
  h.Acknowledge(kTwo, 2);
  ASSERT_EQ(h.committed(), 2u);
  h.Acknowledge(kThree, 1, /*incarnation=*/2);
  h.Tick();
  EXPECT_TRUE(h.output.swaps.empty());
  h.Acknowledge(kTwo, 2);
  // It was near, so that the primary has waited for it to come.
  h.Acknowledge(kThree, 2, /*incarnation=*/2);
  ASSERT_EQ(h.output.swaps.size(), 1u);
  Configuration next = Config(1, 1, {1, 2, 3});
  next.incarnations[kThree] = Incarnation(2);
  EXPECT_EQ(h.output.swaps[0].next, next);
  // From now on it is waited for.
  h.Propose("b");
  h.SyncAll();
  h.Acknowledge(kTwo, 3);
  EXPECT_EQ(h.committed(), 2u);
  h.Acknowledge(kThree, 3, 2);
  EXPECT_EQ(h.committed(), 3u);
}

TEST(Primary, StepsDownWhenItHearsOfALaterReign) {
  Harness h;
  h.Reign();
  h.Hear(kTwo, 2, Hello{Incarnation(1), At(1, 1)});
  EXPECT_EQ(h.replica.role(), Role::kBackup);
  ASSERT_EQ(h.output.roles.size(), 1u);
  EXPECT_EQ(h.output.roles[0].epoch, Epoch(2));
  EXPECT_EQ(h.Propose("a"), 0u);

  Harness other;
  other.Reign();
  other.Configure(Config(2, 3, {2, 3}));
  EXPECT_EQ(other.replica.role(), Role::kBackup);
  EXPECT_EQ(other.replica.leader(), kThree);
}

TEST(Primary, SendsAnAnswerOfAnEarlierEpochAway) {
  Harness h;
  h.Configure(Config(1, 2, {1, 2, 3}));
  h.Silence(2'000);
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps.at(0).id);
  h.SyncAll();
  h.Hear(kThree, 1, Appended{true, LogPosition(1), LogPosition(1)});
  EXPECT_EQ(h.committed(), 0u);
  h.Hear(kThree, 2, Appended{true, LogPosition(1), LogPosition(1)});
  EXPECT_EQ(h.committed(), 1u);
}

TEST(Primary, DoesNotBelieveWhatNobodyCanHave) {
  Harness h;
  h.Reign();
  h.Propose("a");
  h.SyncAll();
  h.Acknowledge(kTwo, 99);
  h.Acknowledge(kThree, 99);
  EXPECT_EQ(h.committed(), 1u);
}

TEST(Primary, GoesBackToWhereAPeerIs) {
  Harness h;
  h.Reign();
  for (const char* command : {"a", "b", "c"}) h.Propose(command);
  h.Hear(kTwo, 1, Appended{false, LogPosition(1), LogPosition(2)});
  const auto append = h.Said<Append>(kTwo);
  ASSERT_TRUE(append);
  EXPECT_EQ(append->before, At(1, 2));
  ASSERT_EQ(append->entries.size(), 2u);
  EXPECT_EQ(append->entries[0], Of(1, "b"));
}

TEST(Primary, KeepsToItsWindowAndItsLimitOfWhatWaits) {
  Options options;
  options.batch_bytes_max = 60;
  options.window_bytes_max = 100;
  options.pending_bytes_max = 400;
  Harness h({}, {kOne, Incarnation(1), Incarnation(1)}, options);
  h.Reign();
  uint64_t sent = 0;
  int taken = 0;
  for (; taken < 100; ++taken) {
    if (!h.replica.Propose("0123456789", h.now).ok()) break;
    h.Look();
    if (const auto append = h.Said<Append>(kTwo)) sent += append->entries.size();
  }
  EXPECT_LT(taken, 100);
  EXPECT_EQ(h.replica.Propose("0123456789", h.now).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_LE(sent, 4u);
  h.Hear(kTwo, 1, Appended{true, LogPosition(2), LogPosition(2)});
  EXPECT_TRUE(h.Said<Append>(kTwo));
}

// For so long that nothing is kept for it.
void WorkWithoutNodeThree(Harness& h) {
  for (int i = 0; i < 30; ++i) {
    h.Tick();
    if (!h.output.swaps.empty()) h.AnswerSwap(SwapOutcome::kDone, h.output.swaps[0].id);
    h.Propose("a");
    h.SyncAll();
    h.Acknowledge(kTwo, h.replica.log().last().position.value);
  }
}

TEST(Primary, AsksForASnapshotForAPeerThatLacksWhatIsNotKept) {
  Options options;
  options.retained_bytes_max = 0;
  Harness h({}, {kOne, Incarnation(1), Incarnation(1)}, options);
  h.Reign();
  WorkWithoutNodeThree(h);
  ASSERT_GT(h.replica.log().base().position, LogPosition(1));
  h.Hear(kThree, 1, Appended{false, LogPosition(0), LogPosition(0)});
  ASSERT_EQ(h.output.snapshots.size(), 1u);
  EXPECT_EQ(h.output.snapshots[0], kThree);
  h.Hear(kThree, 1, Appended{false, LogPosition(0), LogPosition(0)});
  EXPECT_TRUE(h.output.snapshots.empty());  // it is on its way
  const auto says_so_for = [&h](uint64_t ms) {
    size_t asked = 0;
    for (uint64_t passed = 0; passed < ms; passed += 100) {
      h.Tick();
      asked += h.output.snapshots.size();
      h.Acknowledge(kTwo, h.replica.log().last().position.value);
      asked += h.output.snapshots.size();
      h.Hear(kThree, 1, Appended{false, LogPosition(0), LogPosition(0)});
      asked += h.output.snapshots.size();
    }
    return asked;
  };
  EXPECT_EQ(says_so_for(10 * options.snapshot_retry_ms), 0u);  // however long it takes
  h.replica.OnSnapshotEnded(kThree);
  EXPECT_EQ(says_so_for(options.heartbeat_ms), 1u);
  h.replica.OnSnapshotEnded(kThree);
  EXPECT_EQ(says_so_for(options.snapshot_retry_ms / 2), 0u);  // it was asked for just now
  EXPECT_EQ(says_so_for(10 * options.snapshot_retry_ms), 1u);
}

TEST(Primary, KeepsWhatAPeerLacksThatWasHeardSinceTheLastTick) {
  Options options;
  options.retained_bytes_max = 0;
  Harness h({}, {kOne, Incarnation(1), Incarnation(1)}, options);
  h.Reign();
  h.Tick();
  h.Configure(Config(1, 1, {1, 2}));
  h.now += 10;
  h.Acknowledge(kThree, 1);
  ASSERT_EQ(h.Propose("a"), 2u);
  ASSERT_EQ(h.Propose("b"), 3u);
  h.SyncAll();
  h.Acknowledge(kTwo, 3);
  ASSERT_EQ(h.applied, 3u);
  EXPECT_EQ(h.replica.log().base().position, LogPosition(1));
  // What it was sent came in another order: it asks again, and needs no snapshot.
  h.Hear(kThree, 1, Appended{false, LogPosition(1), LogPosition(1)});
  EXPECT_TRUE(h.output.snapshots.empty());
  const auto again = h.Said<Append>(kThree);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->before, At(1, 1));
  EXPECT_EQ(again->entries.size(), 2u);
}

TEST(Primary, AsksForOneSnapshotAlthoughWhatWasProposedBeforeIsSentAfterIt) {
  Options options;
  options.retained_bytes_max = 0;
  Harness h({}, {kOne, Incarnation(1), Incarnation(1)}, options);
  h.Reign();
  WorkWithoutNodeThree(h);
  ASSERT_GT(h.replica.log().base().position, LogPosition(1));
  ASSERT_TRUE(h.replica.Propose("b", h.now).ok());
  // Node 3 is back, and says where it is.
  h.replica.OnMessage({kThree, Incarnation(1), Epoch(1), Appended{false, {}, {}}}, h.now + 10);
  h.replica.OnMessage(
      {kThree, Incarnation(1), Epoch(1), Appended{true, LogPosition(1), LogPosition(1)}},
      h.now + 10);
  h.Look();
  EXPECT_EQ(h.output.snapshots.size(), 1u);
}

TEST(Primary, HandsOverToWhoHasEverything) {
  Harness h;
  h.Reign();
  EXPECT_EQ(h.Propose("a"), 2u);
  EXPECT_TRUE(h.replica.HandOver(kTwo, h.now).ok());
  h.Look();
  EXPECT_FALSE(h.Said<TakeOver>(kTwo));
  EXPECT_EQ(h.Propose("b"), 0u);
  h.Acknowledge(kTwo, 2);
  EXPECT_TRUE(h.Said<TakeOver>(kTwo));
  // Nobody came: it goes on.
  h.Tick(1'100);
  h.Tick();
  EXPECT_EQ(h.Propose("c"), 3u);
  EXPECT_FALSE(h.replica.HandOver(NodeId(9), h.now).ok());
}

TEST(Primary, GoesOnAtOnceWithoutABackupThatLeaves) {
  Harness h;
  h.Reign();
  ASSERT_EQ(h.Propose("a"), 2u);
  h.SyncAll();
  h.Acknowledge(kTwo, 2);
  h.Hear(kThree, 1, Goodbye{}, 7);  // of an incarnation that is not the one in the set
  EXPECT_TRUE(h.output.swaps.empty());
  h.Hear(kThree, 1, Goodbye{});
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next.in_sync, (std::vector<NodeId>{kOne, kTwo}));
  EXPECT_EQ(h.replica.committed().value, 1u);
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps[0].id);
  EXPECT_EQ(h.replica.committed().value, 2u);
  EXPECT_FALSE(h.replica.HandOver(kThree, h.now).ok());
  // What it still says does not bring it back; later it may have been started again.
  h.Acknowledge(kThree, 2);
  h.Tick();
  EXPECT_TRUE(h.output.swaps.empty());
  for (int i = 0; i < 8 && h.output.swaps.empty(); ++i) {
    h.Acknowledge(kTwo, 2);
    h.Acknowledge(kThree, 2);
    h.Tick();
  }
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next.in_sync.size(), 3u);
}

TEST(Primary, ThatIsToLeaveHandsOver) {
  Harness h;
  h.Reign();
  Configuration c = Config(1, 1, {1, 2, 3});
  c.leaving = {kOne, kTwo};
  h.Configure(c);
  h.Tick();
  // First node 2 leaves the set.
  ASSERT_EQ(h.output.swaps.size(), 1u);
  EXPECT_EQ(h.output.swaps[0].next.in_sync, (std::vector<NodeId>{kOne, kThree}));
  h.AnswerSwap(SwapOutcome::kDone, h.output.swaps[0].id);
  h.Tick();
  EXPECT_TRUE(h.Said<TakeOver>(kThree));
  EXPECT_FALSE(h.Said<TakeOver>(kTwo));
  EXPECT_EQ(h.Propose("a"), 0u);
  // Node 3 does not come: the work goes on before it is asked again.
  uint64_t taken = 0;
  for (int i = 0; i < 20; ++i) {
    h.Tick();
    h.Acknowledge(kThree, h.replica.log().last().position.value);
    if (h.Propose("a") != 0) ++taken;
    h.SyncAll();
  }
  EXPECT_GE(taken, 5u);
}

}  // namespace
}  // namespace forebay::replication
