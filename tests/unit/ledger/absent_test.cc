// Shards that do not answer: steps go on without them, and they are taken back when they return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Absent : public ::testing::Test {
 protected:
  Absent() {
    h.PutTrainSource();
    h.Attach();
  }
  // An open step that holds one group of each shard, and lacks two.
  void OpenWithOneOfEach() {
    FOREBAY_CHECK(h.Run(OpenStep{h.generation, StepId(1), h.Spec(4)}).ok());
    for (FakeShard& shard : h.shards) shard.AddReady({});
    h.Summarize();
    FOREBAY_CHECK(h.step(1).groups.size() == 2);
  }
  void LoseShard(uint8_t shard) {
    h.Leave(shard);
    h.Tick(kAbsentAfterMs);
    FOREBAY_CHECK(h.state.absent(ShardId(shard)));
  }
  size_t HeldOf(uint64_t step, uint8_t shard) {
    return std::ranges::count_if(h.step(step).groups, [shard](const HeldGroup& group) {
      return group.group.shard() == ShardId(shard);
    });
  }
  uint64_t WaitingFor(uint8_t shard) {
    return h.state.outbox(ShardId(shard)).Unacknowledged().size();
  }
  Harness h{{.shards = 2}};
};

TEST_F(Absent, AShardIsTakenForAbsentAfterTheBoundAndNotBefore) {
  h.Leave(1);
  EXPECT_EQ(h.primary.NextTick(), kAbsentAfterMs);
  h.Tick(kAbsentAfterMs - 1);
  EXPECT_FALSE(h.state.absent(ShardId(1)));
  EXPECT_FALSE(h.primary.Present(ShardId(1)));
  h.Tick(1);
  EXPECT_TRUE(h.state.absent(ShardId(1)));
  EXPECT_FALSE(h.state.absent(ShardId(0)));
  EXPECT_EQ(h.primary.NextTick(), Primary::kNever);
  h.Return(1);
  EXPECT_FALSE(h.state.absent(ShardId(1)));
  EXPECT_TRUE(h.primary.Present(ShardId(1)));
  EXPECT_EQ(h.state.counters().shard_absences, 1u);
  EXPECT_EQ(h.state.counters().shard_returns, 1u);
}

TEST_F(Absent, TheBoundIsAnOption) {
  h.primary.SetAbsentAfterMs(500);
  h.Leave(0);
  h.Tick(499);
  EXPECT_FALSE(h.state.absent(ShardId(0)));
  h.Tick(1);
  EXPECT_TRUE(h.state.absent(ShardId(0)));
}

TEST_F(Absent, AShardThatAnswersAgainInTimeKeepsItsGroups) {
  OpenWithOneOfEach();
  h.Leave(1);
  h.Tick(kAbsentAfterMs - 1);
  h.Return(1);
  h.Tick(kAbsentAfterMs);
  EXPECT_FALSE(h.state.absent(ShardId(1)));
  EXPECT_EQ(HeldOf(1, 1), 1u);
}

TEST_F(Absent, WhatAnOpenStepHoldsOfItIsReplacedAndTheRestIsKept) {
  OpenWithOneOfEach();
  const GroupId kept = h.step(1).groups[0].group;
  LoseShard(1);
  ASSERT_EQ(h.step(1).groups.size(), 1u);
  EXPECT_EQ(h.step(1).groups[0].group, kept);
  EXPECT_EQ(h.state.counters().groups_of_absent, 1u);
  for (int i = 0; i < 3; ++i) h.shards[0].AddReady({});
  h.Summarize();
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(HeldOf(1, 1), 0u);
  EXPECT_EQ(h.step(1).revision, Revision(1));
  EXPECT_TRUE(h.Commit(1).status.ok());
}

TEST_F(Absent, ARequestThatItHasNotAnsweredIsNotWaitedFor) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(2)}).ok());
  h.shards[1].AddReady({});
  h.shards[1].AddReady({});
  h.away.insert(ShardId(1));
  h.Act([&](Output* output) { h.primary.SetSummary(h.now, h.shards[1].Summary(), output); });
  ASSERT_EQ(h.step(1).requests.size(), 1u);
  LoseShard(1);
  EXPECT_TRUE(h.step(1).requests.empty());
  h.shards[0].AddReady({});
  h.shards[0].AddReady({});
  h.Summarize();
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  ASSERT_TRUE(h.Commit(1).status.ok());
  // The shard reserves what it was asked for, and gives it back at once: it waits for no word.
  h.Return(1);
  EXPECT_TRUE(h.shards[1].reserved(StepId(1)).empty());
  EXPECT_EQ(h.shards[1].ready().size(), 2u);
  EXPECT_EQ(h.state.counters().stale_answers, 1u);
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(2)}).ok());
  h.Summarize();
  EXPECT_EQ(HeldOf(2, 1), 2u);
}

TEST_F(Absent, ItIsAskedForNothing) {
  h.Leave(1);
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(2)}).ok());
  h.shards[1].AddReady({});
  // A summary that was on its way.
  const auto stale = [&] {
    h.Act([&](Output* output) { h.primary.SetSummary(h.now, h.shards[1].Summary(), output); });
  };
  stale();
  EXPECT_TRUE(h.step(1).requests.empty());
  h.Tick(kAbsentAfterMs);
  stale();
  EXPECT_TRUE(h.step(1).requests.empty());
  const RequestGroups ask{StepId(1), Revision(1), {{ShardId(1), 1, 0}}};
  EXPECT_EQ(h.Run(ask).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(h.primary.Waiting(StepId(1), h.now), HasSubstr("without shard 1, which is absent"));
  h.Return(1);
  EXPECT_THAT(h.primary.Waiting(StepId(1), h.now), Not(HasSubstr("absent")));
}

TEST_F(Absent, ATokenStepThatHasEnoughIsSealedWithoutTheAnswer) {
  StepSpec spec = h.Spec(0);
  spec.tokens = 800;
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), spec}).ok());
  h.shards[1].AddReady({});
  h.away.insert(ShardId(1));
  h.Act([&](Output* output) { h.primary.SetSummary(h.now, h.shards[1].Summary(), output); });
  ASSERT_EQ(h.step(1).requests.size(), 1u);
  // One group holds more than all that the step wants.
  h.shards[0].AddReady({.tokens = 400});
  h.Summarize();
  ASSERT_GE(h.step(1).totals.tokens, 800u);
  ASSERT_EQ(h.step(1).state, StepState::kOpen);
  LoseShard(1);
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
}

TEST_F(Absent, ASealedPlanStaysAsItIsAndIsCommitted) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t hash = h.step(1).plan_hash;
  ASSERT_EQ(HeldOf(1, 1), 2u);
  LoseShard(1);
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).plan_hash, hash);
  EXPECT_TRUE(h.Commit(1).status.ok());
  EXPECT_EQ(h.shards[1].committed().size(), 0u);
  h.Return(1);
  EXPECT_EQ(h.shards[1].committed().size(), 2u);
}

TEST_F(Absent, ASealedPlanWhoseBytesAreLostGetsTheNextRevision) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const auto of_absent = std::ranges::find_if(h.step(1).rollouts, [](const HeldRollout& rollout) {
    return rollout.rollout.shard() == ShardId(1);
  });
  const DropDamaged lost{{of_absent->payload}};
  // While the shard is there, it is the shard that says so.
  ASSERT_TRUE(h.Run(lost).ok());
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  LoseShard(1);
  ASSERT_TRUE(h.Run(lost).ok());
  EXPECT_EQ(h.step(1).state, StepState::kOpen);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  for (const absl::Status& status :
       {h.Commit(1, 1).status, h.state.ViewMicroBatch(StepId(1), Revision(1), {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  }
  for (int i = 0; i < 2; ++i) h.shards[0].AddReady({});
  h.Summarize();
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(HeldOf(1, 0), 4u);
  EXPECT_TRUE(h.Commit(1, 2).status.ok());
  h.Return(1);
  EXPECT_EQ(h.shards[1].ready().size(), 2u);
}

TEST_F(Absent, ARetainedStepWhoseBytesAreLostIsServedAgainNoMore) {
  h.primary.SetRetentionBytesMax(1'000'000);
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  ASSERT_EQ(h.state.oldest_replay(), StepId(0));
  const PayloadId of_absent =
      std::ranges::find_if(h.step(1).rollouts, [](const HeldRollout& rollout) {
        return rollout.rollout.shard() == ShardId(1);
      })->payload;
  LoseShard(1);
  ASSERT_TRUE(h.Run(DropDamaged{{of_absent}}).ok());
  EXPECT_EQ(h.state.oldest_replay(), StepId(1));
}

TEST_F(Absent, AdmissionIsDividedAmongThoseThatArePresent) {
  EXPECT_EQ(h.state.versions().shards, 2u);
  LoseShard(1);
  EXPECT_EQ(h.state.versions().shards, 1u);
  const auto* told = h.shards[0].Last<codec::VersionState>();
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(told->shards, 1u);
  LoseShard(0);
  EXPECT_EQ(h.state.versions().shards, 1u) << "nothing is divided by zero";
  h.Return(0);
  h.Return(1);
  EXPECT_EQ(h.state.versions().shards, 2u);
}

TEST_F(Absent, ItIsToldOfVersionsOnceItReturns) {
  LoseShard(1);
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(1)).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  const uint64_t before = WaitingFor(1);
  Announcement announcement;
  announcement.version = h.state.committed_version();
  announcement.where = "w";
  ASSERT_TRUE(h.Run(PublishVersion{h.generation, announcement}).ok());
  EXPECT_EQ(WaitingFor(1), before);
  h.Return(1);
  EXPECT_EQ(WaitingFor(1), 0u);
  const auto* told = h.shards[1].Last<codec::VersionState>();
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(codec::Encode(*told), codec::Encode(h.state.versions()));
}

TEST_F(Absent, MarkingTwiceChangesNothing) {
  LoseShard(1);
  const uint64_t hash = h.state.Hash();
  ASSERT_TRUE(h.Run(MarkShard{ShardId(1), true}).ok());
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(h.Run(MarkShard{ShardId(2), true}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Absent, ItIsRememberedInASnapshotAndFoundToBePresentByANewPrimary) {
  LoseShard(1);
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State again({.shards = 2});
  codec::Reader reader(bytes);
  ASSERT_TRUE(again.Restore(reader));
  EXPECT_TRUE(again.absent(ShardId(1)));
  Primary fresh(again);
  Output output;
  fresh.Tick(7, &output);
  ASSERT_EQ(output.commands.size(), 1u);
  const auto& mark = std::get<MarkShard>(output.commands[0].second);
  EXPECT_EQ(mark.shard, ShardId(1));
  EXPECT_FALSE(mark.absent);
}

}  // namespace
}  // namespace forebay::ledger
