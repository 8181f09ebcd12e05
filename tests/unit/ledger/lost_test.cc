// Steps that hold what is lost are planned anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;

class Lost : public ::testing::Test {
 protected:
  Lost() {
    h.PutTrainSource();
    h.Attach();
  }
  // The shard of that rollout says so, and drops it when the group comes back.
  void Lose(uint64_t step, size_t rollout) {
    const RolloutId id = h.step(step).rollouts[rollout].rollout;
    h.shards[id.shard().value].Lose(StepId(step), id);
    h.Deliver();
  }
  Harness h{{.shards = 2}};
};

TEST_F(Lost, ARolloutOfASealedStepIsLeftOutUnderANewRevision) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const RolloutId gone = h.step(1).rollouts[3].rollout;
  Lose(1, 3);
  EXPECT_EQ(h.step(1).state, StepState::kOpen);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  h.Summarize();
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).totals.groups, 4u);
  EXPECT_EQ(h.step(1).totals.rollouts, 15u);
  for (const HeldRollout& rollout : h.step(1).rollouts) EXPECT_NE(rollout.rollout, gone);
  EXPECT_EQ(h.state.counters().steps_damaged, 1u);
  for (const absl::Status& status :
       {h.Commit(1, 1).status, h.state.ViewMicroBatch(StepId(1), Revision(1), {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("open the step again"));
  }
  EXPECT_EQ(h.Commit(1, 3).status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.Commit(1, 0).status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(h.Commit(1, 2).status.ok());
}

TEST_F(Lost, TheStepAfterItKeepsItsGroups) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  const uint64_t hash = h.step(2).plan_hash;
  Lose(1, 0);
  EXPECT_EQ(h.step(2).state, StepState::kSealed);
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(2).plan_hash, hash);
  EXPECT_EQ(h.step(2).revision, Revision(1));
  EXPECT_TRUE(h.Commit(1, 2).status.ok());
  EXPECT_TRUE(h.Commit(2, 1).status.ok());
}

TEST_F(Lost, AnOpenStepReservesAgain) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(3)}).ok());
  h.shards[0].AddReady({});
  h.Summarize();
  ASSERT_EQ(h.step(1).groups.size(), 1u);
  Lose(1, 0);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  h.Summarize();
  EXPECT_EQ(h.step(1).totals.rollouts, 3u);
}

TEST_F(Lost, AStepThatIsOverOrHoldsOthersIsLeftAlone) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  const RolloutId id = h.step(1).rollouts[0].rollout;
  h.shards[id.shard().value].Tell(StepId(1), RolloutId(77));
  h.Deliver();
  EXPECT_EQ(h.step(1).revision, Revision(1));
  ASSERT_TRUE(h.Commit(1).status.ok());
  h.shards[id.shard().value].Tell(StepId(1), id);
  h.shards[id.shard().value].Tell(StepId(9), id);
  h.Deliver();
  EXPECT_EQ(h.state.counters().steps_damaged, 0u);
}

TEST_F(Lost, ALostColumnPlansItsStepAnew) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t tokens = h.state.ViewMicroBatch(StepId(1), Revision(1), {})->tokens;
  const WrittenColumn column{"old_logprobs", 11, {}, PayloadId(5), tokens * 4};
  ASSERT_TRUE(h.Run(PutColumns{h.generation, StepId(1), Revision(1), {}, {column}}).ok());
  ASSERT_TRUE(h.Run(DropDamaged{{PayloadId(6), PayloadId()}}).ok());
  EXPECT_EQ(h.step(1).revision, Revision(1));
  ASSERT_TRUE(h.Run(DropDamaged{{PayloadId(5)}}).ok());
  EXPECT_EQ(h.step(1).revision, Revision(2));
  EXPECT_TRUE(h.step(1).written.empty());
  EXPECT_THAT(h.dead, ::testing::ElementsAre(PayloadId(5)));
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.Run(PutColumns{h.generation, StepId(1), Revision(1), {}, {column}}).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(Lost, WhatIsLostIsRememberedInASnapshot) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  Lose(1, 0);
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State again({.shards = 2});
  codec::Reader reader(bytes);
  ASSERT_TRUE(again.Restore(reader));
  EXPECT_EQ(again.step(StepId(1))->lost, Revision(1));
}

}  // namespace
}  // namespace forebay::ledger
