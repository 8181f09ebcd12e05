// Rollouts whose payloads are lost, and those that an operator drops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr SourceId kSource = Harness::kSource;

// Of a harness that has pushed nothing else: the payload of the i-th push is i + 1.
DropDamaged Lost(const std::vector<Assignment>& assignments, std::vector<size_t> which,
                 uint64_t before = 0) {
  DropDamaged drop;
  for (const size_t i : which) {
    drop.payloads.push_back({assignments[i].attempt, PayloadId(before + i + 1)});
  }
  return drop;
}

uint64_t Count(Harness& h, const Command& command) {
  const auto reply = h.Ask<CountReply>(command);
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  return reply.count;
}

std::vector<codec::RolloutsLost> Told(const Harness& h) {
  std::vector<codec::RolloutsLost> told;
  for (const codec::NumberedMessage& message : h.effects.to_ledger) {
    codec::ToLedger body;
    EXPECT_TRUE(codec::Decode(message.body, &body));
    if (const auto* lost = std::get_if<codec::RolloutsLost>(&body)) told.push_back(*lost);
  }
  return told;
}

TEST(Drops, AReadyGroupGoesOnWithoutWhatIsLostUnderItsBaseline) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  EXPECT_EQ(Count(h, Lost(a, {1})), 1u);
  EXPECT_THAT(h.effects.dead_payloads, ElementsAre(PayloadId(2)));
  EXPECT_THAT(Told(h), IsEmpty());
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 1u);
  h.CheckState();
  const auto groups = h.Reserve(1, 1, 0).groups;
  ASSERT_THAT(groups, SizeIs(1));
  ASSERT_THAT(groups[0].rollouts, SizeIs(3));
  // Rewards 0, 1, 0, 1: as it was with all of them.
  EXPECT_FLOAT_EQ(groups[0].rollouts[0].advantage, -groups[0].rollouts[2].advantage);
  EXPECT_EQ(Count(h, Lost(a, {1})), 0u);
}

TEST(Drops, AReadyGroupWithTooFewLeftGoesAndIsCountedByWhatItLost) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  EXPECT_EQ(Count(h, Lost(a, {0, 1, 3, 3})), 3u);
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 3u);
  EXPECT_EQ(h.Dropped(DropReason::kShort), 1u);
  EXPECT_EQ(h.View().groups_ready, 0u);
  EXPECT_EQ(h.View().outstanding, 0u);
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  h.CheckState();
  const auto all = h.Group();
  EXPECT_EQ(Count(h, Lost(all, {0, 1, 2, 3}, 4)), 4u);
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 7u);
  EXPECT_EQ(h.Dropped(DropReason::kShort), 1u);
  h.CheckState();
}

TEST(Drops, InAnIncompleteGroupTheAttemptIsDoneAgain) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.Push(a[0], 0);
  h.Push(a[1], 1);
  EXPECT_EQ(Count(h, Lost(a, {0})), 1u);
  h.CheckState();
  EXPECT_EQ(h.Push(h.Meta(a[0], 1)), PushResult::kDuplicate);
  const auto again = h.Acquire(1).assignments;
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].attempt, a[0].attempt);
  EXPECT_EQ(h.Push(again[0], 0), PushResult::kAccepted);
  h.Push(a[2], 0);
  h.Push(a[3], 1);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.Counters().held, 4u);
  EXPECT_EQ(h.Counters().failed, 0u);
  h.CheckState();
}

TEST(Drops, ARolloutThatStaysOfACommittedStepIsForTheLedgerToLetGo) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  const auto reserved = h.Reserve(1, 1, 0).groups;
  h.Commit(1, 1, true);
  EXPECT_EQ(Count(h, Lost(a, {2})), 1u);
  const auto told = Told(h);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].step, StepId(1));
  EXPECT_THAT(told[0].rollouts, ElementsAre(reserved[0].rollouts[2].rollout));
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
  h.CheckState();
  const absl::Status refused =
      h.Ask<CountReply>(DropByOperator{kSource, false, told[0].rollouts}).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("is trained, by step 1"));
  h.FromLedger(codec::StepsReleased{StepId(1)});
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  EXPECT_EQ(h.Counters().trained, 4u);
  h.CheckState();
}

TEST(Drops, AReservedRolloutStaysUntilItsStepGivesItBack) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  const auto reserved = h.Reserve(5, 1, 0).groups;
  EXPECT_EQ(Count(h, Lost(a, {2})), 1u);
  const auto told = Told(h);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].step, StepId(5));
  EXPECT_THAT(told[0].rollouts, ElementsAre(reserved[0].rollouts[2].rollout));
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
  EXPECT_EQ(h.Counters().reserved, 4u);
  // Said once.
  EXPECT_EQ(Count(h, Lost(a, {2})), 0u);
  EXPECT_THAT(Told(h), IsEmpty());
  h.CheckState();

  h.FromLedger(codec::Unreserve{StepId(5), {}});
  EXPECT_THAT(h.effects.dead_payloads, ElementsAre(PayloadId(3)));
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 1u);
  EXPECT_EQ(h.Counters().held, 3u);
  h.CheckState();
  EXPECT_THAT(h.Reserve(5, 1, 0).groups.at(0).rollouts, SizeIs(3));
}

TEST(Drops, AReservedRolloutIsTrainedIfItsStepIsCommittedFirst) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  h.Reserve(5, 1, 0);
  EXPECT_EQ(Count(h, Lost(a, {0, 1, 2, 3})), 4u);
  h.Commit(5, 1);
  EXPECT_EQ(h.Counters().trained, 4u);
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 0u);
  h.CheckState();
}

TEST(Drops, WhatIsMarkedSurvivesARestart) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  h.Reserve(5, 1, 0);
  Count(h, Lost(a, {2}));
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State again(Options{ShardId(3), 7});
  codec::Reader reader(bytes);
  ASSERT_TRUE(again.Restore(reader));
  h.state = std::move(again);
  h.FromLedger(codec::Unreserve{StepId(5), {}});
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 1u);
}

TEST(Drops, ALostUnfinishedAttemptBeginsAnew) {
  Harness h;
  h.Start();
  h.FromLedger(h.Versions(1));
  const auto a = h.Acquire(4).assignments;
  RolloutMeta partial = h.Meta(a[0], 0);
  partial.partial = true;
  partial.first.versions = {{0, {0, 0}, 10}};
  ASSERT_EQ(h.Push(partial), PushResult::kAccepted);
  EXPECT_EQ(Count(h, DropDamaged{{{a[0].attempt, partial.payload}}}), 0u);
  EXPECT_THAT(h.effects.dead_payloads, ElementsAre(partial.payload));
  h.CheckState();
  const auto again = h.Acquire(1).assignments;
  EXPECT_EQ(again.at(0).partial, PayloadId());
  EXPECT_EQ(again.at(0).version.number, 1u);
}

TEST(Drops, WhoeverHoldsALostUnfinishedAttemptMayHaveContinuedIt) {
  Harness h;
  h.settings.max_lag = 5;
  h.Start();
  h.FromLedger(h.Versions(1));
  const auto a = h.Acquire(4).assignments;
  RolloutMeta partial = h.Meta(a[0], 0);
  partial.partial = true;
  partial.first.versions = {{0, {0, 0}, 10}};
  ASSERT_EQ(h.Push(partial), PushResult::kAccepted);
  const auto again = h.Acquire(1).assignments;
  ASSERT_EQ(again.at(0).partial, partial.payload);
  Count(h, DropDamaged{{{a[0].attempt, partial.payload}}});
  EXPECT_TRUE(h.state.LeaseHeld({again[0].attempt, again[0].token}));
  h.CheckState();
  ASSERT_EQ(h.Push(again[0], 0), PushResult::kAccepted);
  for (size_t i = 1; i < 4; ++i) h.Push(a[i], static_cast<double>(i % 2));
  const auto groups = h.Reserve(1, 1, 1).groups;
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_EQ(groups[0].rollouts[0].version, 0u);
  EXPECT_EQ(groups[0].rollouts[1].version, 1u);
}

TEST(Drops, WhatIsNotThereChangesNothing) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  const uint64_t hash = h.state.Hash();
  h.Apply(DropDamaged{{{a[0].attempt, PayloadId(99)},
                       {a[0].attempt, PayloadId()},
                       {AttemptId(12345), PayloadId(1)},
                       {AttemptId(), PayloadId(1)}}});
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Drops, PayloadsAreFoundByTheirAttempts) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.Push(a[0], 0);
  RolloutMeta partial = h.Meta(a[1], 0);
  partial.partial = true;
  h.Push(partial);
  const auto found =
      h.state.FindPayloads({PayloadId(1), partial.payload, PayloadId(77), PayloadId()});
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[0].attempt, a[0].attempt);
  EXPECT_EQ(found[0].payload, PayloadId(1));
  EXPECT_EQ(found[1].attempt, a[1].attempt);
  EXPECT_EQ(found[1].payload, partial.payload);
}

TEST(Drops, AnOperatorDropsAllThatIsReadyAndNothingElse) {
  Harness h;
  h.Start();
  h.Group();
  h.Reserve(1, 1, 0);
  h.Group();
  h.Group();
  const auto open = h.Acquire(4).assignments;
  h.Push(open[0], 1);
  const double survival = h.View().survival;
  EXPECT_EQ(Count(h, DropByOperator{.source = kSource, .ready = true}), 8u);
  EXPECT_EQ(h.Dropped(DropReason::kOperator), 8u);
  EXPECT_EQ(h.View().groups_ready, 0u);
  EXPECT_EQ(h.View().groups_open, 1u);
  EXPECT_EQ(h.View().groups_reserved, 1u);
  EXPECT_EQ(h.View().survival, survival);
  EXPECT_EQ(Count(h, DropByOperator{.source = kSource, .ready = true}), 0u);
  h.CheckState();
}

TEST(Drops, AnOperatorDropsRolloutsByTheirIdsOrNone) {
  Harness h;
  h.Start();
  h.Group();
  const auto reserved = h.Reserve(7, 1, 0).groups.at(0).rollouts;
  h.Group();
  uint64_t cursor = 0;
  std::vector<RolloutId> ready;
  for (const RolloutView& view : h.state.Rollouts(&cursor, 100)) {
    if (view.state == GroupState::kReady) ready.push_back(view.rollout);
  }
  ASSERT_THAT(ready, SizeIs(4));
  const auto refusal = [&](std::vector<RolloutId> rollouts, SourceId source = kSource) {
    const auto reply = h.Ask<CountReply>(DropByOperator{source, false, std::move(rollouts)});
    EXPECT_FALSE(reply.status.ok());
    return std::string(reply.status.message());
  };
  const uint64_t hash = h.state.Hash();
  EXPECT_THAT(refusal({ready[0], reserved[0].rollout}), HasSubstr("reserved by step 7"));
  EXPECT_THAT(refusal({ready[0], RolloutId(5)}), HasSubstr("holds no rollout 0x5"));
  EXPECT_THAT(refusal({ready[0]}, SourceId(9)), HasSubstr("is not known"));
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(Count(h, DropByOperator{kSource, false, {ready[0], ready[0]}}), 1u);
  EXPECT_EQ(h.View().groups_ready, 1u);
  h.CheckState();
  // One alone has nothing to be compared with.
  EXPECT_EQ(Count(h, DropByOperator{kSource, false, {ready[1], ready[2]}}), 3u);
  EXPECT_EQ(h.View().groups_ready, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kOperator), 3u);
  EXPECT_EQ(h.Dropped(DropReason::kShort), 1u);
  h.CheckState();
}

}  // namespace
}  // namespace forebay::shard
