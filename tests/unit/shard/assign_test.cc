#include <set>

#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

TEST(Assign, HandsOutWholeGroupsOfOneTaskUnderFreshTokens) {
  Harness h;
  h.Start();
  const AssignReply reply = h.Acquire(8);
  ASSERT_EQ(reply.assignments.size(), 8u);
  std::set<uint64_t> tasks, seeds;
  for (const Assignment& a : reply.assignments) {
    EXPECT_EQ(a.token, 1u);
    EXPECT_EQ(a.content.value, 3000 + a.task.index());
    tasks.insert(a.task.value);
    seeds.insert(a.seed);
  }
  EXPECT_EQ(tasks.size(), 2u);
  EXPECT_EQ(seeds.size(), 8u);
  EXPECT_STREQ(reply.reason, "");
  h.CheckState();
}

TEST(Assign, RepeatsTheAnswerOfTheLastRequest) {
  Harness h;
  h.Start();
  const AssignReply first = h.Acquire(3);
  const uint64_t hash = h.state.Hash();
  --h.request_id;
  const AssignReply again = h.Acquire(3);
  ASSERT_EQ(again.assignments.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again.assignments[i].attempt, first.assignments[i].attempt);
    EXPECT_EQ(again.assignments[i].token, first.assignments[i].token);
    EXPECT_EQ(again.assignments[i].seed, first.assignments[i].seed);
  }
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Assign, AnOldRequestGetsNothing) {
  Harness h;
  h.Start();
  h.Acquire(1);
  h.Acquire(1);
  h.request_id -= 2;
  const AssignReply old = h.Acquire(1);
  EXPECT_TRUE(old.assignments.empty());
  EXPECT_STREQ(old.reason, "superseded");
}

TEST(Assign, ARequestThatGotNothingMayBeMadeAgain) {
  Harness h;
  h.Start(0);
  EXPECT_STREQ(h.Acquire(4).reason, "no_tasks");
  h.Add(Harness::kSource, 0, 10);
  --h.request_id;
  EXPECT_EQ(h.Acquire(4).assignments.size(), 4u);
}

TEST(Assign, RefusesASessionThatIsNotOpen) {
  Harness h;
  h.Start();
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Acquire(1, SessionId(99)).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Assign, FinishesOpenGroupsBeforeItBeginsNewOnes) {
  Harness h;
  h.Start();
  const auto first = h.Acquire(2).assignments;
  const auto second = h.Acquire(4).assignments;
  EXPECT_EQ(second[0].group, first[0].group);
  EXPECT_EQ(second[1].group, first[0].group);
  EXPECT_NE(second[2].group, first[0].group);
  EXPECT_EQ(second[1].number, 3u);
}

TEST(Assign, HandsOutAttemptsThatCameBackFirst) {
  Harness h;
  h.Start();
  const auto first = h.Acquire(5).assignments;
  h.Apply(Release{Harness::kActor, {{first[1].attempt, 1}}});
  const auto next = h.Acquire(4).assignments;
  ASSERT_EQ(next.size(), 4u);
  EXPECT_EQ(next[0].attempt, first[1].attempt);
  EXPECT_EQ(next[0].token, 2u);
  EXPECT_EQ(next[0].seed, first[1].seed);
  EXPECT_EQ(next[1].group, first[4].group);
  h.CheckState();
}

TEST(Assign, AdmitsNoMoreThanLagTimesRolloutsPerVersion) {
  Harness h;
  h.settings.max_lag = 1;
  h.Start();
  h.FromLedger(h.Versions(0, 8));
  EXPECT_EQ(h.Acquire(100).assignments.size(), 16u);
  EXPECT_EQ(h.View().outstanding, 16u);
  EXPECT_EQ(h.View().outstanding_max, 16u);
  EXPECT_STREQ(h.Acquire(100).reason, "admission");
}

TEST(Assign, AdmitsAtLeastOneGroup) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.FromLedger(h.Versions(0, 1));
  EXPECT_EQ(h.Acquire(100).assignments.size(), 4u);
}

TEST(Assign, FilteredGroupsMakeRoomForNewOnes) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.FromLedger(h.Versions(0, 8));
  const auto all = h.Acquire(8).assignments;
  ASSERT_EQ(all.size(), 8u);
  EXPECT_STREQ(h.Acquire(1).reason, "admission");
  for (size_t i = 0; i < 4; ++i) h.Push(all[i], 1);
  EXPECT_EQ(h.Dropped(DropReason::kFilteredEqual), 4u);
  EXPECT_GE(h.Acquire(8).assignments.size(), 4u);
  h.CheckState();
}

TEST(Assign, CommittedRolloutsCountUntilTheirVersionIsPublished) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.FromLedger(h.Versions(0, 4));
  h.Group();
  h.Reserve(1, 1, 0);
  h.Commit(1, 1);
  EXPECT_EQ(h.View().outstanding, 4u);
  EXPECT_STREQ(h.Acquire(4).reason, "admission");
  h.FromLedger(h.Versions(1, 4));
  EXPECT_EQ(h.View().outstanding, 0u);
  EXPECT_EQ(h.Acquire(4).assignments.size(), 4u);
  h.CheckState();
}

TEST(Assign, HandsOutNothingThatIsStaleFromTheStart) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.FromLedger(h.Versions(0, 100));
  h.Commit(1, 1);
  EXPECT_STREQ(h.Acquire(4).reason, "admission");
  h.FromLedger(h.Versions(1, 100));
  EXPECT_EQ(h.Acquire(4).assignments.size(), 4u);
}

TEST(Assign, CountsLagInPublishedVersionsWhenEachIsSeveralOptimizerSteps) {
  Harness h;
  h.settings.max_lag = 5;
  h.Start();
  codec::VersionState versions = h.Versions(0, 8);
  versions.numbers_per_version = 4;
  h.FromLedger(versions);
  EXPECT_EQ(h.Acquire(1000).assignments.size(), 16u) << "this version's 8, and 8 for one more";
  versions.numbers_per_version = 1;
  h.FromLedger(versions);
  EXPECT_EQ(h.Acquire(1000).assignments.size(), 32u) << "6 x 8 in all";
}

TEST(Assign, SharesAdmissionByWeight) {
  Harness h;
  h.settings.max_lag = 0;
  h.settings.weight = 3;
  h.Start();
  h.settings.name = "code";
  h.settings.weight = 1;
  h.PutSource(SourceId(1));
  h.Add(SourceId(1), 500, 100);
  h.FromLedger(h.Versions(0, 64));
  EXPECT_EQ(h.Acquire(1000).assignments.size(), 64u);
  EXPECT_EQ(h.View(SourceId(0)).outstanding, 48u);
  EXPECT_EQ(h.View(SourceId(1)).outstanding, 16u);
}

TEST(Assign, AStepThatTakesFromOneSourceIsFilledByItAlone) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.settings.name = "code";
  h.PutSource(SourceId(1));
  h.Add(SourceId(1), 500, 100);
  h.FromLedger(h.Versions(0, 16));
  h.Acquire(1000);
  EXPECT_EQ(h.View().outstanding, 8u);
  EXPECT_EQ(h.View().outstanding_max, 8u);
  codec::VersionState versions = h.Versions(0, 16);
  versions.wanted_sources = {Harness::kSource};
  h.FromLedger(versions);
  EXPECT_EQ(h.View().outstanding_max, 16u) << "what is shown is what holds";
  h.Acquire(1000);
  EXPECT_EQ(h.View().outstanding, 16u);
}

TEST(Assign, BeginsNoGroupsWhenMemoryIsShort) {
  Harness h;
  h.Start();
  Assign assign;
  assign.session = Harness::kActor;
  assign.request_id = ++h.request_id;
  assign.max = 8;
  assign.new_groups_max = 1;
  EXPECT_EQ(h.Ask<AssignReply>(assign).assignments.size(), 4u);
  assign.request_id = ++h.request_id;
  assign.new_groups_max = 0;
  const AssignReply reply = h.Ask<AssignReply>(assign);
  EXPECT_TRUE(reply.assignments.empty());
  EXPECT_STREQ(reply.reason, "memory");
}

TEST(Assign, SaysThatAllSourcesArePaused) {
  Harness h;
  h.Start();
  h.settings.paused = true;
  h.PutSource();
  EXPECT_STREQ(h.Acquire(1).reason, "paused");
}

TEST(Assign, OnlyFromTheSourcesThatTheRequestNames) {
  Harness h;
  h.Start();
  h.settings.name = "code";
  h.PutSource(SourceId(1));
  h.Add(SourceId(1), 500, 100);
  Assign assign;
  assign.session = Harness::kActor;
  assign.request_id = ++h.request_id;
  assign.max = 40;
  assign.sources = {SourceId(1)};
  for (const Assignment& a : h.Ask<AssignReply>(assign).assignments) {
    EXPECT_EQ(a.task.source(), SourceId(1));
  }
}

TEST(Assign, LeaseTimesFollowMeasuredDurations) {
  Harness h;
  h.settings.lease_min_ms = 10;
  h.settings.lease_max_ms = 1000;
  h.settings.lease_duration_factor = 3;
  h.Start();
  EXPECT_EQ(h.Acquire(1).assignments[0].lease_ms, 1000u);
  h.PushAll(h.Acquire(3).assignments);
  h.Group();
  EXPECT_EQ(h.Acquire(1).assignments.at(0).lease_ms, 150u);
}

}  // namespace
}  // namespace forebay::shard
