#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

// A ready group whose rollouts are of the versions given.
void MixedGroup(Harness& h, std::vector<uint32_t> versions) {
  const auto a = h.Acquire(4).assignments;
  ASSERT_EQ(a.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    RolloutMeta meta = h.Meta(a[i], static_cast<double>(i % 2));
    meta.first.versions = {{0, {h.branch, versions[i]}, 10}};
    ASSERT_EQ(h.Push(meta), PushResult::kAccepted);
  }
}

TEST(Steps, ReserveReportsRolloutsByAttemptWithVersionAndLag) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 4; i-- > 0;) h.Push(a[i], static_cast<double>(i));
  const codec::Reserved reserved = h.Reserve(1, 5, 1);
  EXPECT_EQ(reserved.step, StepId(1));
  EXPECT_EQ(reserved.request, 1u);
  ASSERT_EQ(reserved.groups.size(), 1u);
  EXPECT_EQ(reserved.groups[0].group, a[0].group);
  EXPECT_EQ(reserved.groups[0].task, a[0].task);
  ASSERT_EQ(reserved.groups[0].rollouts.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const codec::RolloutReport& r = reserved.groups[0].rollouts[i];
    EXPECT_EQ(r.reward, static_cast<float>(i));
    EXPECT_EQ(r.lag, 1u);
    EXPECT_EQ(r.payload_bytes, 100u);
    ASSERT_EQ(r.sequences.size(), 1u);
    EXPECT_EQ(r.sequences[0].loss_tokens, 10u);
  }
  EXPECT_EQ(h.View().groups_reserved, 1u);
  EXPECT_EQ(h.Counters().reserved, 4u);
  h.CheckState();
}

TEST(Steps, AReservationWithNothingReadyIsAnsweredEmpty) {
  Harness h;
  h.Start();
  EXPECT_TRUE(h.Reserve(1, 3, 0).groups.empty());
  h.CheckState();
}

TEST(Steps, TheOldestVersionIsTakenFirstThenTheEarliestCompleted) {
  Harness h;
  h.settings.max_lag = 9;
  h.Start();
  h.FromLedger(h.Versions(4));
  MixedGroup(h, {3, 3, 3, 3});
  MixedGroup(h, {4, 4, 4, 4});
  MixedGroup(h, {4, 2, 4, 4});
  MixedGroup(h, {3, 3, 4, 4});
  const codec::Reserved reserved = h.Reserve(1, 3, 4);
  ASSERT_EQ(reserved.groups.size(), 3u);
  EXPECT_EQ(reserved.groups[0].rollouts[1].version, 2u);
  EXPECT_EQ(reserved.groups[1].rollouts[3].version, 3u);
  EXPECT_EQ(reserved.groups[2].rollouts[3].version, 4u);
  h.CheckState();
}

TEST(Steps, ReserveStopsAtTheTokensWanted) {
  Harness h;
  h.Start();
  for (int i = 0; i < 4; ++i) h.Group();
  codec::Reserve reserve;
  reserve.step = StepId(1);
  reserve.groups = 100;
  reserve.tokens = 81;
  h.FromLedger(reserve);
  EXPECT_EQ(h.View().groups_reserved, 2u);
}

TEST(Steps, RolloutsOverTheLagLimitAreDropped) {
  Harness h;
  h.settings.max_lag = 2;
  h.Start();
  h.FromLedger(h.Versions(2));
  MixedGroup(h, {0, 2, 2, 1});
  const codec::Reserved reserved = h.Reserve(1, 1, 3);
  ASSERT_EQ(reserved.groups.size(), 1u);
  EXPECT_EQ(reserved.groups[0].rollouts.size(), 3u);
  for (const auto& r : reserved.groups[0].rollouts) EXPECT_LE(r.lag, 2u);
  // The baseline set is the one at completion: the advantages are not computed anew.
  EXPECT_NEAR(reserved.groups[0].rollouts[0].advantage, 0.866, 1e-3);
  EXPECT_EQ(h.Dropped(DropReason::kStale), 1u);
  EXPECT_EQ(h.View().outstanding, 3u);
  h.CheckState();
}

TEST(Steps, AGroupWithFewerThanTwoLeftIsDroppedWhole) {
  Harness h;
  h.settings.max_lag = 2;
  h.Start();
  h.FromLedger(h.Versions(2));
  MixedGroup(h, {0, 0, 2, 0});
  EXPECT_TRUE(h.Reserve(1, 1, 3).groups.empty());
  EXPECT_EQ(h.Dropped(DropReason::kStale), 3u);
  EXPECT_EQ(h.Dropped(DropReason::kShort), 1u);
  EXPECT_EQ(h.View().outstanding, 0u);
  h.CheckState();
}

TEST(Steps, AStepsTighterLimitCounts) {
  Harness h;
  h.settings.max_lag = 5;
  h.Start();
  h.FromLedger(h.Versions(2));
  MixedGroup(h, {1, 2, 2, 2});
  EXPECT_EQ(h.Reserve(1, 1, 2, 0).groups.at(0).rollouts.size(), 3u);
}

TEST(Steps, BaselineOnlyRolloutsAreNotTrained) {
  Harness h;
  h.settings.max_lag = 0;
  h.settings.late = codec::LateRule::kBaselineOnly;
  h.Start();
  h.FromLedger(h.Versions(2));
  MixedGroup(h, {1, 2, 2, 2});
  EXPECT_EQ(h.Reserve(1, 1, 2).groups.at(0).rollouts.size(), 3u);
  EXPECT_EQ(h.Counters().baseline_only, 1u);
}

TEST(Steps, OldTokensAreMasked) {
  Harness h;
  h.settings.max_lag = 1;
  h.settings.late = codec::LateRule::kMaskOldTokens;
  h.Start();
  h.FromLedger(h.Versions(3));
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 0; i < 4; ++i) {
    RolloutMeta meta = h.Meta(a[i], static_cast<double>(i % 2));
    if (i == 0) meta.first.versions = {{0, {0, 1}, 4}, {9, {0, 3}, 6}};
    if (i == 1) meta.first.versions = {{0, {0, 1}, 10}};
    h.Push(meta);
  }
  const codec::Reserved reserved = h.Reserve(1, 1, 3);
  const auto& rollouts = reserved.groups.at(0).rollouts;
  ASSERT_EQ(rollouts.size(), 3u);
  EXPECT_EQ(rollouts[0].mask_below, 2u);
  EXPECT_EQ(rollouts[0].lag, 2u);
  EXPECT_EQ(rollouts[0].sequences[0].loss_tokens, 6u);
  EXPECT_EQ(rollouts[1].mask_below, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kStale), 1u);
  EXPECT_EQ(h.Counters().masked, 1u);
  h.CheckState();
}

TEST(Steps, LateRolloutsAreTrainedIfTheSourceSaysSo) {
  Harness h;
  h.settings.max_lag = 0;
  h.settings.late = codec::LateRule::kTrain;
  h.Start();
  h.FromLedger(h.Versions(5));
  MixedGroup(h, {0, 1, 2, 3});
  const codec::Reserved reserved = h.Reserve(1, 1, 5);
  ASSERT_EQ(reserved.groups.size(), 1u);
  EXPECT_EQ(reserved.groups[0].rollouts[0].lag, 5u);
}

TEST(Steps, ReadyGroupsThatNoStepCanUseAreDroppedAndMakeRoom) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.FromLedger(h.Versions(0, 4));
  h.Group();
  EXPECT_STREQ(h.Acquire(4).reason, "admission");
  h.Commit(1, 1);
  EXPECT_EQ(h.Dropped(DropReason::kStale), 4u);
  h.FromLedger(h.Versions(1, 4));
  EXPECT_EQ(h.Acquire(4).assignments.size(), 4u);
  h.CheckState();
}

// docs/decisions/2026-11-30-survival-without-staleness.md
TEST(Steps, WhatGrewTooOldLeavesTheExpectedSurvivalAndSoAdmissionAlone) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.FromLedger(h.Versions(0, 4));
  const uint64_t limit = h.View().outstanding_max;
  for (uint32_t version = 1; version <= 8; ++version) {
    const uint32_t now = version - 1;
    MixedGroup(h, {now, now, now, now});
    h.Commit(version, version);  // too old for every step to come
    h.FromLedger(h.Versions(version, 4));
  }
  EXPECT_EQ(h.Dropped(DropReason::kStale), 32u);
  EXPECT_EQ(h.View().survival, 1);
  EXPECT_EQ(h.View().outstanding_max, limit);
  // The few that a group keeps are dropped with it, for the same cause.
  h.settings.max_lag = 2;
  h.PutSource();
  MixedGroup(h, {6, 6, 8, 6});
  EXPECT_TRUE(h.Reserve(9, 9, 9).groups.empty());
  EXPECT_EQ(h.Dropped(DropReason::kShort), 1u);
  EXPECT_EQ(h.View().survival, 1);
  h.CheckState();
}

TEST(Steps, AnOpenStepKeepsGroupsThatTheNextCouldNotUse) {
  Harness h;
  h.settings.max_lag = 0;
  h.Start();
  h.Group();
  codec::VersionState versions = h.Versions(0);
  versions.next_train.number = 2;
  h.FromLedger(versions);
  EXPECT_EQ(h.Reserve(1, 1, 0).groups.size(), 1u);
}

TEST(Steps, UnreservedGroupsComeBackInTheirOrder) {
  Harness h;
  h.Start();
  for (int i = 0; i < 4; ++i) h.Group();
  const codec::Reserved first = h.Reserve(1, 3, 0);
  h.FromLedger(codec::Unreserve{StepId(1), {}});
  EXPECT_EQ(h.Counters().reserved, 0u);
  const codec::Reserved second = h.Reserve(2, 4, 0);
  ASSERT_EQ(second.groups.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(second.groups[i].group, first.groups[i].group);
  h.FromLedger(codec::Unreserve{StepId(2), {second.groups[1].group}});
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.Reserve(2, 4, 0).groups.at(0).group, second.groups[1].group);
  h.CheckState();
}

TEST(Steps, ACommitConsumesWhatTheStepHolds) {
  Harness h;
  h.Start();
  for (int i = 0; i < 3; ++i) h.Group();
  h.Reserve(1, 2, 0);
  h.FromLedger(codec::StepReplanned{StepId(1), Revision(2)});
  h.Commit(1, 1);
  EXPECT_EQ(h.effects.dead_payloads.size(), 8u);
  EXPECT_EQ(h.Counters().trained, 8u);
  EXPECT_EQ(h.Counters().tokens_trained, 160u);
  EXPECT_EQ(h.View().groups_reserved, 0u);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.state.payload_bytes(), 400u);
  h.CheckState();
}

TEST(Steps, AnAbandonedBranchComesBackAsDropped) {
  Harness h;
  h.Start();
  h.Group();
  h.Group();
  h.Reserve(1, 1, 0);
  h.branch = 1;
  h.FromLedger(h.Versions(0));
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 4u);
  h.FromLedger(codec::Unreserve{StepId(1), {}});
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 8u);
  EXPECT_EQ(h.View().outstanding, 0u);
  EXPECT_EQ(h.Acquire(1).assignments[0].version.branch, 1u);
  h.CheckState();
}

TEST(Steps, MessagesOfTheLedgerAreAppliedOnceAndInOrder) {
  Harness h;
  h.Start();
  h.Group();
  const uint64_t hash = h.state.Hash();
  h.ledger_number += 1;
  h.FromLedger(codec::StepCommitted{StepId(1), Revision(1), {0, 1}});
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(h.effects.acknowledge_ledger, h.ledger_number - 2);
  h.ledger_number -= 3;
  h.FromLedger(h.Versions(7));
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Steps, AnswersAreKeptUntilTheLedgerAcknowledgesThem) {
  Harness h;
  h.Start();
  h.Reserve(1, 1, 0);
  h.Reserve(1, 1, 0);
  EXPECT_EQ(h.state.to_ledger().Unacknowledged().size(), 2u);
  h.Apply(LedgerAcknowledged{1});
  ASSERT_EQ(h.state.to_ledger().Unacknowledged().size(), 1u);
  EXPECT_EQ(h.state.to_ledger().Unacknowledged().front().number, 2u);
}

TEST(Steps, SequencesOfARolloutAreReportedEach) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 0; i < 4; ++i) {
    RolloutMeta meta = h.Meta(a[i], static_cast<double>(i % 2));
    if (i == 0) meta.more = {{30, 3, 7, 0.25f, {}}};
    h.Push(meta);
  }
  EXPECT_EQ(h.View().ready_tokens, 110u);
  const codec::Reserved reserved = h.Reserve(1, 1, 0);
  const auto& sequences = reserved.groups.at(0).rollouts[0].sequences;
  ASSERT_EQ(sequences.size(), 2u);
  EXPECT_EQ(sequences[0].tokens, 20u);
  EXPECT_EQ(sequences[1].tokens, 30u);
  EXPECT_EQ(sequences[1].advantage, 0.25f);
}

}  // namespace
}  // namespace forebay::shard
