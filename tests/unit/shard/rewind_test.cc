// What stays of committed steps, and what a rewind makes of it.
#include <gmock/gmock.h>

#include "shard/limits.h"
#include "shard/primary.h"
#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class RewindTest : public testing::Test {
 protected:
  void SetUp() override {
    h.settings.order = codec::Order::kStatic;
    h.Start();
  }
  // A group that finishes, is reserved and trained by the step.
  std::vector<Assignment> Train(uint64_t step, bool retain = true) {
    auto group = h.Group();
    EXPECT_THAT(h.Reserve(step, 1, static_cast<uint32_t>(step - 1)).groups, SizeIs(1));
    h.Commit(step, static_cast<uint32_t>(step), retain);
    h.FromLedger(h.Versions(static_cast<uint32_t>(step)));
    return group;
  }
  std::vector<TaskView> Tasks() const {
    uint64_t cursor = 0;
    return h.state.Tasks(Harness::kSource, &cursor, 1000);
  }
  void PublishNewBranch(uint32_t number) { h.FromLedger(h.Versions(number)); }
  std::vector<uint64_t> ExternalOrder(uint32_t groups) {
    std::vector<uint64_t> order;
    for (uint32_t i = 0; i < groups; ++i) order.push_back(h.Group()[0].task.index());
    return order;
  }

  Harness h;
};

TEST_F(RewindTest, PayloadsOfARetainedStepStayAndNeedNoMemory) {
  h.Group();
  h.Reserve(1, 1, 0);
  h.Commit(1, 1, true);
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
  EXPECT_THAT(h.effects.cold_payloads,
              ElementsAre(PayloadId(1), PayloadId(2), PayloadId(3), PayloadId(4)));
  EXPECT_EQ(h.state.payload_bytes(), 0u);
  EXPECT_EQ(h.state.retained_bytes(), 400u);
  EXPECT_EQ(h.Counters().trained, 4u);
  uint64_t cursor = 0;
  const auto rollouts = h.state.Rollouts(&cursor, 10);
  ASSERT_THAT(rollouts, SizeIs(4));
  EXPECT_EQ(rollouts[0].state, GroupState::kTrained);
  EXPECT_EQ(rollouts[0].step, StepId(1));
  h.CheckState();
}

TEST_F(RewindTest, ReleasedAndCoveredStepsFreeTheirPayloads) {
  Train(1);
  Train(2);
  Train(3);
  h.FromLedger(codec::StepsReleased{StepId(1)});
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  EXPECT_EQ(h.state.retained_bytes(), 800u);
  h.FromLedger(codec::StepsCovered{StepId(2)});
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  EXPECT_EQ(h.state.retained_bytes(), 400u);
  EXPECT_EQ(h.Counters().trained, 12u);
  h.CheckState();
}

TEST_F(RewindTest, APushIntoARetainedGroupIsADuplicate) {
  const auto group = Train(1);
  EXPECT_EQ(h.Push(group[0], 1), PushResult::kDuplicate);
  h.CheckState();
}

TEST_F(RewindTest, FreshDropsWhatWasTrainedSinceWithItsReason) {
  Train(1);
  Train(2);
  Train(3);
  h.GoBack(1, 1, 1, 3);
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(8));
  EXPECT_EQ(h.Counters().trained, 4u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 8u);
  EXPECT_EQ(h.state.retained_bytes(), 400u);
  EXPECT_EQ(h.View().outstanding, 0u);
  h.CheckState();
}

TEST_F(RewindTest, WhatAStepTrainedWithoutKeepingItIsDroppedToo) {
  Train(1, false);
  Train(2, false);
  Train(3);
  h.FromLedger(codec::StepsReleased{StepId(3)});
  h.GoBack(1, 1, 1, 3);
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty()) << "they are gone already";
  EXPECT_EQ(h.Counters().trained, 4u);
  EXPECT_EQ(h.Counters().groups_trained, 1u);
  EXPECT_EQ(h.Counters().tokens_trained, 80u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 8u);
  h.CheckState();
}

TEST_F(RewindTest, OpenReadyAndReservedGroupsOfTheOldBranchAreDropped) {
  Train(1);
  h.Group();
  h.Reserve(2, 1, 1);
  h.Group();
  const auto open = h.Acquire(4).assignments;
  ASSERT_EQ(h.Push(open[0], 1), PushResult::kAccepted);
  h.GoBack(1, 1, 1, 1);
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(9));
  EXPECT_EQ(h.View().groups_open + h.View().groups_ready + h.View().groups_reserved, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 9u);
  EXPECT_EQ(h.View().in_flight, 0u);
  h.CheckState();
  const PushOutcome late = h.Put({h.Meta(open[1], 1)}).outcomes[0];
  EXPECT_EQ(late.result, PushResult::kStale);
  EXPECT_EQ(late.message, "the attempt's branch of versions was abandoned");
  Primary primary(h.state, 0);
  const LeaseRef lease{open[1].attempt, open[1].token};
  const RenewReply renewed = primary.Renew(1, Harness::kActor, {&lease, 1}, {});
  EXPECT_THAT(renewed.actions, ElementsAre(LeaseAction::kAbandon));
  EXPECT_STREQ(renewed.reasons[0], "rewound");
}

TEST_F(RewindTest, NothingIsHandedOutBeforeTheNewBranchIsPublished) {
  Train(1);
  h.GoBack(0, 0, 0, 1);
  EXPECT_THAT(h.Acquire(4).assignments, IsEmpty());
  PublishNewBranch(0);
  const auto group = h.Acquire(4).assignments;
  ASSERT_THAT(group, SizeIs(4));
  EXPECT_EQ(group[0].version, (PolicyVersion{1, 0}));
  // Versions of the old branch, and those that the new one does not have yet.
  RolloutMeta meta = h.Meta(group[0], 1);
  meta.first.versions = {{0, {0, 0}, 10}};
  PushOutcome outcome = h.Put({meta}).outcomes[0];
  EXPECT_EQ(outcome.result, PushResult::kStale);
  EXPECT_EQ(outcome.message, "version 0.0 is of an abandoned branch; the current one is 1");
  meta.first.versions = {{0, {1, 1}, 10}};
  EXPECT_EQ(h.Push(meta), PushResult::kInvalid);
}

TEST_F(RewindTest, AGroupThatIsPushedWholeBeforeThatIsRefused) {
  Train(1);
  h.GoBack(0, 0, 0, 1);
  PutGroup put{9, Harness::kSource, {1000, 2000, PayloadId(3000), 1}, {h.Meta(0), h.Meta(1)}};
  put.rollouts[0].first.versions = {{0, {1, 0}, 10}};
  const auto reply = h.Ask<PutRolloutsReply>(put);
  EXPECT_EQ(reply.outcomes[0].result, PushResult::kStale);
  EXPECT_EQ(reply.outcomes[1].message, "no version of branch 1 is published yet");
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(2));
  PublishNewBranch(0);
  EXPECT_EQ(h.Ask<PutRolloutsReply>(put).accepted, 2u);
  h.CheckState();
}

TEST_F(RewindTest, ReplayHoldsTheGroupsForTheirStepsAgain) {
  Train(1);
  Train(2);
  Train(3);
  h.GoBack(1, 3, 1, 3);
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
  EXPECT_EQ(h.View().groups_reserved, 2u);
  EXPECT_EQ(h.Counters().trained, 4u);
  EXPECT_EQ(h.Counters().reserved, 8u);
  EXPECT_EQ(h.View().outstanding, 8u) << "admission counts them until their versions are out";
  EXPECT_EQ(h.state.payload_bytes(), 800u);
  h.CheckState();
  h.Commit(2, 2, true);
  h.Commit(3, 3, false);
  EXPECT_EQ(h.Counters().trained, 12u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 0u);
  EXPECT_EQ(h.state.retained_bytes(), 800u);
  h.CheckState();
}

TEST_F(RewindTest, AReplayIsBrokenOffByAnother) {
  Train(1);
  Train(2);
  Train(3);
  h.GoBack(1, 3, 1, 3);
  h.Commit(2, 2, true);
  h.GoBack(1, 3, 1, 3);
  EXPECT_EQ(h.Counters().reserved, 8u);
  h.CheckState();
  h.GoBack(1, 1, 1, 3);
  EXPECT_EQ(h.Counters().reserved, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 8u);
  h.CheckState();
}

TEST_F(RewindTest, GroupsOfAnAbortedReplayAreDropped) {
  Train(1);
  h.GoBack(0, 1, 0, 1);
  h.FromLedger(codec::Unreserve{StepId(1), {}});
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 4u);
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  h.CheckState();
}

TEST_F(RewindTest, StatisticsReturnToWhatTheyWere) {
  Train(1);
  const auto before = Tasks();
  const SourceView source = h.View();
  Train(2);
  h.PushAll(h.Acquire(4).assignments);
  auto equal = h.Acquire(4).assignments;
  for (const Assignment& a : equal) ASSERT_EQ(h.Push(a, 1), PushResult::kAccepted);
  ASSERT_EQ(h.Counters().groups_filtered, 1u);
  ASSERT_NE(h.View().survival, source.survival);
  h.GoBack(1, 1, 1, 2);
  const auto after = Tasks();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].pass_a, before[i].pass_a) << i;
    EXPECT_EQ(after[i].pass_b, before[i].pass_b) << i;
    EXPECT_EQ(after[i].rollouts, before[i].rollouts) << i;
    EXPECT_EQ(after[i].groups, before[i].groups) << i;
    EXPECT_EQ(after[i].mean_tokens, before[i].mean_tokens) << i;
  }
  EXPECT_EQ(h.View().survival, source.survival);
  EXPECT_EQ(h.View().mean_tokens, source.mean_tokens);
  EXPECT_EQ(h.View().mean_duration_ms, source.mean_duration_ms);
  h.CheckState();
}

TEST_F(RewindTest, TasksOfWhatIsDroppedGetTheirTurnAgain) {
  EXPECT_THAT(Train(1)[0].task.index(), 0u);
  EXPECT_THAT(Train(2)[0].task.index(), 1u);
  EXPECT_THAT(h.Group()[0].task.index(), 2u);
  EXPECT_THAT(h.Acquire(1).assignments[0].task.index(), 3u);
  h.GoBack(1, 1, 1, 2);
  PublishNewBranch(1);
  EXPECT_THAT(ExternalOrder(4), ElementsAre(1, 2, 3, 4));
}

TEST_F(RewindTest, TasksOfStepsThatAreServedAgainDoNot) {
  Train(1);
  Train(2);
  h.GoBack(0, 2, 0, 2);
  PublishNewBranch(2);
  EXPECT_THAT(ExternalOrder(1), ElementsAre(2));
}

TEST_F(RewindTest, SeveralStepsAreUndoneAndTheCheckpointsOwnStay) {
  h.settings.order = codec::Order::kShuffled;
  h.settings.epochs = 0;
  h.Add(Harness::kSource, 100, 1);
  const auto none = Tasks();
  for (uint64_t step = 1; step <= 30; ++step) Train(step);
  h.FromLedger(codec::StepsCovered{StepId(20)});
  h.GoBack(20, 20, 20, 30);
  uint64_t groups = 0;
  for (const TaskView& task : Tasks()) groups += task.groups;
  EXPECT_EQ(groups, 20u);
  h.CheckState();
}

TEST_F(RewindTest, OfManyStepsOnlyTheOldestAndTheNewestCanBeGoneBackTo) {
  h.Add(Harness::kSource, 100, 300);
  for (uint64_t step = 1; step <= 100; ++step) Train(step, false);
  h.CheckState();
  h.GoBack(40, 40, 40, 100);
  uint64_t groups = 0;
  for (const TaskView& task : Tasks()) groups += task.groups;
  EXPECT_EQ(groups, 40u);
  EXPECT_EQ(h.Counters().trained, 160u);
  h.GoBack(0, 0, 0, 100);
  for (const TaskView& task : Tasks()) EXPECT_EQ(task.groups, 0u);
  EXPECT_EQ(h.Counters().trained, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 400u);
  h.CheckState();
}

TEST_F(RewindTest, EvaluationsGoOn) {
  codec::SourceSettings eval = h.settings;
  eval.name = "eval";
  eval.purpose = codec::Purpose::kEval;
  h.FromLedger(codec::SourceChanged{SourceId(1), eval});
  h.Add(SourceId(1), 500, 1);
  Train(1);
  ASSERT_TRUE(h.Ask<CountReply>(StartEval{EvalRunId(5), SourceId(1), {0, 1}, 1, 1}).status.ok());
  Assign assign;
  assign.session = Harness::kActor;
  assign.request_id = ++h.request_id;
  assign.max = 1;
  assign.version = {0, 1};
  const auto a = h.Ask<AssignReply>(assign).assignments;
  ASSERT_THAT(a, SizeIs(1));
  h.GoBack(0, 0, 0, 1);
  EXPECT_EQ(h.Push(a[0], 1), PushResult::kAccepted);
  EXPECT_TRUE(h.state.Eval(EvalRunId(5))->done);
  h.CheckState();
}

TEST_F(RewindTest, SnapshotsHoldIt) {
  Train(1);
  Train(2, false);
  Train(3);
  h.GoBack(2, 3, 2, 3);
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State restored(Options{ShardId(3), 7});
  codec::Reader reader(bytes);
  ASSERT_TRUE(restored.Restore(reader));
  EXPECT_EQ(restored.Hash(), h.state.Hash());
  const codec::VersionState versions = h.Versions(9);
  Effects effects;
  restored.Apply(
      FromLedger{h.ledger_number + 1, codec::Rewound{StepId(0), StepId(0), {1, 0}, versions}}, 0,
      &effects);
  h.FromLedger(codec::Rewound{StepId(0), StepId(0), {1, 0}, versions});
  EXPECT_EQ(restored.Hash(), h.state.Hash());
  h.CheckState();
}

}  // namespace
}  // namespace forebay::shard
