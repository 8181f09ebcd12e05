#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

CountReply Count(Harness& h, const Command& command) { return h.Ask<CountReply>(command); }

TEST(Groups, EqualRewardsAreFilteredUnlessKept) {
  for (bool keep : {false, true}) {
    Harness h;
    h.settings.keep_equal_rewards = keep;
    h.Start();
    const auto a = h.Acquire(4).assignments;
    for (const Assignment& assignment : a) h.Push(assignment, 1);
    EXPECT_EQ(h.View().groups_ready, keep ? 1u : 0u);
    EXPECT_EQ(h.Dropped(DropReason::kFilteredEqual), keep ? 0u : 4u);
    EXPECT_EQ(h.state.payload_bytes(), keep ? 400u : 0u);
    EXPECT_EQ(h.state.curriculum().source(Harness::kSource)->counters().groups_finished, 1u);
    h.CheckState();
  }
}

class Screening : public testing::Test {
 protected:
  Screening() {
    h.settings.group_size = h.settings.attempts_per_task = h.settings.complete_at = 8;
    h.settings.screen_attempts = 3;
    h.settings.order = codec::Order::kStatic;
    h.Start(1);  // one task: what is handed out is of one group
    h.settings.epochs = 1;
    h.PutSource();
  }
  ~Screening() override { h.CheckState(); }
  Harness h;
};

TEST_F(Screening, HandsOutTheRestOnlyAfterRewardsThatDiffer) {
  auto first = h.Acquire(8).assignments;
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(h.Acquire(8).assignments.size(), 0u);
  h.Push(first[0], 1);
  h.Push(first[1], 1);
  EXPECT_EQ(h.Acquire(8).assignments.size(), 0u);
  h.Push(first[2], 0);
  h.CheckState();
  const auto rest = h.Acquire(8).assignments;
  ASSERT_EQ(rest.size(), 5u);
  EXPECT_EQ(rest[0].group, first[0].group);
  EXPECT_EQ(rest[0].number, 3u);
  h.PushAll(rest);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.Counters().groups_screened_out, 0u);
  EXPECT_EQ(h.Counters().held, 8u);
}

TEST_F(Screening, FiltersAtOnceWhatTeachesNothing) {
  const auto first = h.Acquire(8).assignments;
  for (const Assignment& a : first) h.Push(a, 1);
  EXPECT_EQ(h.Counters().groups_screened_out, 1u);
  EXPECT_EQ(h.Counters().groups_filtered, 1u);
  EXPECT_EQ(h.Dropped(DropReason::kFilteredEqual), 3u);
  EXPECT_EQ(h.View().outstanding, 0u);
  EXPECT_EQ(h.View().groups_open, 0u);
  // The task counts as solved by what was made.
  const auto& task = *h.state.curriculum().task(first[0].task);
  EXPECT_EQ(task.rollouts, 3u);
  EXPECT_EQ(task.pass_a, 3);
}

TEST_F(Screening, AttemptsThatComeBackAreScreenedAgain) {
  const auto first = h.Acquire(8).assignments;
  ASSERT_EQ(h.Ask<CountReply>(Release{Harness::kActor, {{first[1].attempt, first[1].token}}}).count,
            1u);
  h.Push(first[0], 0);
  h.Push(first[2], 1);
  h.CheckState();
  const auto again = h.Acquire(8).assignments;
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].attempt, first[1].attempt);
  h.Push(again[0], 1);
  EXPECT_EQ(h.Acquire(8).assignments.size(), 5u);
}

TEST_F(Screening, WaitsForLateRewards) {
  h.settings.reward_timeout_ms = 10'000;
  h.PutSource();
  const auto first = h.Acquire(8).assignments;
  h.Push(first[0], 0);
  h.Push(first[1], 0);
  RolloutMeta meta = h.Meta(first[2], 0);
  meta.rewards_present = 0;
  EXPECT_EQ(h.Push(meta), PushResult::kAccepted);
  EXPECT_EQ(h.Acquire(8).assignments.size(), 0u);
  h.Ask<SetRewardsReply>(SetRewards{{{first[2].attempt, 1, 1.0}}});
  EXPECT_EQ(h.Acquire(8).assignments.size(), 5u);
}

TEST(Groups, AFilteredGroupFreesItsPayloads) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 0; i < 3; ++i) h.Push(a[i], 1);
  h.Push(a[3], 1);
  EXPECT_EQ(h.effects.dead_payloads.size(), 4u);
  EXPECT_EQ(h.Push(a[3], 1), PushResult::kDuplicate);
}

TEST(Groups, GroupsWithALongRolloutAreFilteredByLength) {
  Harness h;
  h.settings.filter_max_tokens = 30;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 0; i < 4; ++i) {
    RolloutMeta meta = h.Meta(a[i], static_cast<double>(i % 2));
    if (i == 2) meta.first.tokens = 31;
    h.Push(meta);
  }
  EXPECT_EQ(h.Dropped(DropReason::kFilteredLength), 4u);
}

TEST(Groups, ABaselineOfOneIsFiltered) {
  Harness h;
  h.settings.group_size = h.settings.attempts_per_task = h.settings.complete_at = 1;
  h.settings.keep_equal_rewards = true;
  h.Start();
  h.Push(h.Acquire(1).assignments[0], 1);
  EXPECT_EQ(h.Dropped(DropReason::kFilteredSingle), 1u);
}

TEST(Groups, ASingleRolloutIsAGroupIfNothingIsCompared) {
  Harness h;
  h.settings.group_size = h.settings.attempts_per_task = h.settings.complete_at = 1;
  h.settings.advantage = codec::AdvantageKind::kNone;
  h.Start();
  h.Push(h.Acquire(1).assignments[0], 0.7);
  const codec::Reserved reserved = h.Reserve(1, 5, 0);
  ASSERT_EQ(reserved.groups.size(), 1u);
  EXPECT_FLOAT_EQ(reserved.groups[0].rollouts[0].advantage, 0.7f);
}

TEST(Groups, CompleteWithTheMinimumAfterTheirDeadline) {
  Harness h;
  h.settings.complete_minimum = 2;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.Push(a[0], 1);
  h.Apply(GroupsTimedOut{{a[0].group}, {}});
  EXPECT_EQ(h.View().groups_ready, 0u);
  h.Push(a[1], 0);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.Push(a[2], 0), PushResult::kLate);
  h.CheckState();
}

TEST(Groups, AGroupWhoseAttemptsAreUsedUpCompletesWithWhatThereIs) {
  Harness h;
  h.settings.truncated = codec::TruncatedRule::kDrop;
  h.Start();
  for (size_t truncated : {2u, 3u}) {
    const auto a = h.Acquire(4).assignments;
    for (size_t i = 0; i < 4; ++i) {
      RolloutMeta meta = h.Meta(a[i], static_cast<double>(i % 2));
      if (i < truncated) meta.status = RolloutStatus::kTruncated;
      EXPECT_EQ(h.Push(meta), PushResult::kAccepted);
    }
  }
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.Dropped(DropReason::kShort), 1u);
  EXPECT_EQ(h.View().groups_open, 0u);
  h.CheckState();
}

TEST(Groups, ATaskIsQuarantinedAfterMaxFailuresAndItsGroupDropped) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.Push(a[3], 1);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Count(h, Fail{Harness::kActor, {{a[i].attempt, 1}}, "boom"}).count, 1u);
    EXPECT_EQ(Count(h, Fail{Harness::kActor, {{a[i].attempt, 1}}, "boom"}).count, 0u);
  }
  EXPECT_EQ(h.View().quarantined, 0u);
  h.Apply(Fail{Harness::kActor, {{a[2].attempt, 1}}, "boom"});
  EXPECT_EQ(h.View().quarantined, 1u);
  EXPECT_EQ(h.View().groups_open, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kFailed), 1u);
  EXPECT_EQ(h.View().outstanding, 0u);
  h.CheckState();
}

TEST(Groups, AnActorThatDiesCountsOnceForATaskHoweverManyAttemptsItHeld) {
  Harness h;
  h.Start();
  for (int round = 1; round <= 3; ++round) {
    const auto a = h.Acquire(4).assignments;
    ASSERT_EQ(a.size(), 4u);
    for (const Assignment& assignment : a)
      h.Apply(Expire{{{assignment.attempt, assignment.token}}});
    EXPECT_EQ(h.View().quarantined, round == 3 ? 1u : 0u);
    EXPECT_EQ(h.Counters().expired, round == 3 ? 9u : 4u * round);
  }
  h.CheckState();
}

TEST(Groups, OnlyTheHolderReleasesAndFails) {
  Harness h;
  h.Start();
  h.Apply(OpenSession{SessionId(2), "b", "", "", ""});
  const auto a = h.Acquire(1).assignments;
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(Count(h, Release{SessionId(2), {{a[0].attempt, 1}}}).count, 0u);
  EXPECT_EQ(Count(h, Fail{SessionId(2), {{a[0].attempt, 1}}, ""}).count, 0u);
  EXPECT_EQ(Count(h, Release{SessionId(9), {{a[0].attempt, 1}}}).status.code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Count(h, Release{Harness::kActor, {{a[0].attempt, 2}}}).count, 0u);
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(Count(h, Release{Harness::kActor, {{a[0].attempt, 1}}}).count, 1u);
}

TEST(Groups, AnOldTokenChangesNothing) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(1).assignments;
  h.Apply(Release{Harness::kActor, {{a[0].attempt, 1}}});
  ASSERT_EQ(h.Acquire(1).assignments[0].token, 2u);
  const uint64_t hash = h.state.Hash();
  h.Apply(Release{Harness::kActor, {{a[0].attempt, 1}}});
  h.Apply(Fail{Harness::kActor, {{a[0].attempt, 1}}, ""});
  h.Apply(Expire{{{a[0].attempt, 1}}});
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_TRUE(h.state.LeaseHeld({a[0].attempt, 2}));
  EXPECT_FALSE(h.state.LeaseHeld({a[0].attempt, 1}));
}

TEST(Groups, QuarantineDropsOpenGroupsAndRequeueBringsTasksBack) {
  Harness h;
  h.Start(1);
  const auto a = h.Acquire(4).assignments;
  h.Push(a[0], 1);
  EXPECT_EQ(Count(h, SetQuarantine{Harness::kSource, true, {1000}, false}).count, 1u);
  EXPECT_EQ(h.View().groups_open, 0u);
  EXPECT_STREQ(h.Acquire(1).reason, "no_tasks");
  EXPECT_EQ(Count(h, SetQuarantine{Harness::kSource, false, {}, true}).count, 1u);
  EXPECT_EQ(h.Acquire(4).assignments.size(), 4u);
  EXPECT_EQ(Count(h, SetQuarantine{SourceId(9), true, {1}, false}).status.code(),
            absl::StatusCode::kNotFound);
  h.CheckState();
}

TEST(Groups, TheBudgetTakesTheYoungestGroupThatHoldsBytes) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(12).assignments;
  h.Push(a[0], 1);
  h.Push(a[4], 1);
  EXPECT_EQ(Count(h, DropForBudget{}).count, 1u);
  EXPECT_EQ(h.Dropped(DropReason::kBudget), 1u);
  EXPECT_EQ(h.Push(a[5], 1), PushResult::kLate);
  EXPECT_EQ(h.Push(a[1], 1), PushResult::kAccepted);
  EXPECT_EQ(Count(h, DropForBudget{}).count, 1u);
  EXPECT_EQ(Count(h, DropForBudget{}).count, 0u);
  h.CheckState();
}

TEST(Groups, TheBudgetTakesWhatUnfinishedAttemptsHaveSaved) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(8).assignments;
  RolloutMeta saved = h.Meta(a[1], 0);
  saved.partial = true;
  ASSERT_EQ(h.Push(saved), PushResult::kAccepted);
  EXPECT_EQ(Count(h, DropForBudget{}).count, 1u);
  EXPECT_EQ(h.View().groups_open, 1u);
  EXPECT_EQ(h.Push(a[1], 1), PushResult::kLate);
  EXPECT_EQ(h.Push(a[4], 1), PushResult::kAccepted);
  h.CheckState();
}

TEST(Groups, TheBudgetSparesTheSourcesThatAStepTakesFrom) {
  Harness h;
  h.Start();
  h.Group();
  h.Group();
  const auto open = h.Acquire(4).assignments;
  h.Push(open[0], 1);
  EXPECT_EQ(Count(h, DropForBudget{{Harness::kSource}}).count, 0u);
  const double survival = h.View().survival;
  // Of others: what is not complete, then what is ready. Those say nothing about survival.
  const DropForBudget others{{SourceId(9)}};
  EXPECT_EQ(Count(h, others).count, 1u);
  EXPECT_EQ(h.View().groups_open, 0u);
  EXPECT_LT(h.View().survival, survival);
  const double before = h.View().survival;
  EXPECT_EQ(Count(h, others).count, 1u);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.View().survival, before);
  EXPECT_EQ(h.Dropped(DropReason::kBudget), 5u);
  EXPECT_EQ(Count(h, others).count, 1u);
  EXPECT_EQ(Count(h, others).count, 0u);
  h.CheckState();
}

TEST(PutGroup, GoesStraightToReadyAndAddsItsTask) {
  Harness h;
  h.Start(3);
  PutGroup put{5, Harness::kSource, {77, 78, PayloadId(79), 1}, {h.Meta(0), h.Meta(1), h.Meta(0)}};
  EXPECT_EQ(h.Ask<PutRolloutsReply>(put).accepted, 3u);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.View().tasks, 4u);
  EXPECT_EQ(h.View().outstanding, 3u);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Ask<PutRolloutsReply>(put).outcomes[0].result, PushResult::kDuplicate);
  EXPECT_TRUE(h.effects.dead_payloads.empty());
  EXPECT_TRUE(h.effects.dead_contents.empty());
  for (RolloutMeta& meta : put.rollouts) meta.payload.value += 100;
  put.task.content = PayloadId(80);
  EXPECT_EQ(h.Ask<PutRolloutsReply>(put).accepted, 3u);
  EXPECT_EQ(h.effects.dead_payloads.size(), 3u);
  EXPECT_EQ(h.effects.dead_contents, std::vector<PayloadId>{PayloadId(80)});
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(h.Reserve(1, 2, 0).groups.size(), 1u);
  h.CheckState();
}

TEST(PutGroup, BadGroupsAreRefusedWholeAndChangeNothing) {
  Harness h;
  h.settings.max_lag = 1;
  h.Start(3);
  h.settings.name = "held-out";
  h.settings.purpose = codec::Purpose::kEval;
  h.PutSource(SourceId(1));
  h.FromLedger(h.Versions(3));
  const uint64_t hash = h.state.Hash();
  const PutGroup good{5, Harness::kSource, {77, 78, PayloadId(79), 1}, {h.Meta(0), h.Meta(1)}};
  const auto refused = [&](PutGroup put, size_t at, const char* field, PushResult result) {
    const PutRolloutsReply reply = h.Ask<PutRolloutsReply>(put);
    EXPECT_EQ(reply.accepted, 0u) << field;
    EXPECT_STREQ(reply.outcomes.at(at).field, field);
    EXPECT_EQ(reply.outcomes.at(at).result, result) << field;
    EXPECT_EQ(h.effects.dead_payloads.size(), put.rollouts.size());
    EXPECT_EQ(h.state.Hash(), hash) << field;
  };
  PutGroup put = good;
  put.request_id = 0;
  refused(put, 0, "group.request_id", PushResult::kInvalid);
  put = good;
  put.source = SourceId(9);
  refused(put, 0, "group.source", PushResult::kInvalid);
  put.source = SourceId(1);
  refused(put, 0, "group.source", PushResult::kInvalid);
  put = good;
  put.task.weight = -1;
  refused(put, 0, "group.task", PushResult::kInvalid);
  put = good;
  put.rollouts.clear();
  refused(put, 0, "rollouts", PushResult::kInvalid);
  put = good;
  put.rollouts[1].first.tokens = 0;
  refused(put, 1, "sequences.tokens", PushResult::kInvalid);
  refused(put, 0, "rollouts", PushResult::kInvalid);
  put = good;
  put.rollouts[0].rewards_present = 0;
  refused(put, 0, "rewards", PushResult::kInvalid);
  put = good;
  put.rollouts[0].partial = true;
  refused(put, 0, "partial", PushResult::kInvalid);
  put = good;
  put.rollouts[1].first.versions = {{0, {0, 1}, 10}};
  refused(put, 1, "versions", PushResult::kStale);
}

TEST(Tasks, RefusedAddsChangeNothingAndNameTheirDeadContents) {
  Harness h;
  h.Start(3);
  const uint64_t hash = h.state.Hash();
  AddTasks other{Harness::kSource, {{1000, 1, PayloadId(5), 1}}};
  EXPECT_EQ(h.Ask<AddTasksReply>(other).status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(h.effects.dead_contents, std::vector<PayloadId>{PayloadId(5)});
  AddTasks weight{Harness::kSource, {{5, 1, PayloadId(5), -1}}};
  EXPECT_EQ(h.Ask<AddTasksReply>(weight).status.code(), absl::StatusCode::kInvalidArgument);
  AddTasks unknown{SourceId(7), {{5, 1, PayloadId(5), 1}}};
  EXPECT_EQ(h.Ask<AddTasksReply>(unknown).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.state.Hash(), hash);
  AddTasks known{Harness::kSource, {{1000, 2000, PayloadId(5), 1}}};
  EXPECT_EQ(h.Ask<AddTasksReply>(known).known, 1u);
  EXPECT_EQ(h.effects.dead_contents, std::vector<PayloadId>{PayloadId(5)});
  EXPECT_EQ(h.state.Hash(), hash);
}

}  // namespace
}  // namespace forebay::shard
