#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;

class Replan : public ::testing::Test {
 protected:
  Replan() {
    h.PutTrainSource();
    h.Attach();
  }
  absl::Status Ask(uint64_t step, const StepSpec& spec) {
    return h.Run(OpenStep{h.generation, StepId(step), spec, true});
  }
  Harness h{{.shards = 2}};
};

std::vector<std::pair<uint64_t, float>> Advantages(const Step& step) {
  std::vector<std::pair<uint64_t, float>> result;
  for (const HeldRollout& r : step.rollouts) result.emplace_back(r.rollout.value, r.advantage);
  return result;
}

TEST_F(Replan, OfASealedStepKeepsGroupsAndAdvantagesUnderANewRevision) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const auto advantages = Advantages(h.step(1));
  const uint64_t hash = h.step(1).plan_hash;
  h.Attach(3);
  StepSpec spec = h.Spec(4);
  spec.token_budget = 300;
  ASSERT_TRUE(Ask(1, spec).ok());
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  EXPECT_EQ(Advantages(h.step(1)), advantages);
  EXPECT_EQ(h.step(1).totals.dp, 3);
  EXPECT_NE(h.step(1).plan_hash, hash);
  for (FakeShard& shard : h.shards) EXPECT_EQ(shard.revision(StepId(1)), Revision(2));
  EXPECT_EQ(h.Commit(1, 1).status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.state.ViewMicroBatch(StepId(1), Revision(1), {}).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_TRUE(h.Commit(1, 2).status.ok());
}

TEST_F(Replan, WithTheSameSpecIsTheSamePlan) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t before = h.state.Hash();
  EXPECT_TRUE(Ask(1, h.Spec(4)).ok());
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(Replan, BackAndForthGivesTheFirstPlanAgain) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t hash = h.step(1).plan_hash;
  StepSpec other = h.Spec(4);
  other.token_budget = 200;
  ASSERT_TRUE(Ask(1, other).ok());
  ASSERT_TRUE(Ask(1, h.Spec(4)).ok());
  EXPECT_EQ(h.step(1).revision, Revision(3));
  EXPECT_EQ(h.step(1).plan_hash, hash);
}

TEST_F(Replan, DropsWrittenColumns) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t tokens = h.state.ViewMicroBatch(StepId(1), Revision(1), {})->tokens;
  WrittenColumn column{"old_logprobs", 11, {}, PayloadId(5), tokens * 4};
  ASSERT_TRUE(h.Run(PutColumns{h.generation, StepId(1), Revision(1), {}, {column}}).ok());
  StepSpec other = h.Spec(4);
  other.token_budget = 200;
  ASSERT_TRUE(Ask(1, other).ok());
  EXPECT_TRUE(h.step(1).written.empty());
  EXPECT_THAT(h.dead, ::testing::ElementsAre(PayloadId(5)));
}

TEST_F(Replan, OfASealedStepTakesNoOtherGroups) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t before = h.state.Hash();
  const absl::Status status = Ask(1, h.Spec(5));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("groups: 5, not 4"));
  StepSpec spec = h.Spec(4);
  spec.custom_advantages = true;
  EXPECT_THAT(Ask(1, spec).message(), HasSubstr("custom_advantages"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(Replan, ThatCannotBePackedLeavesThePlan) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const uint64_t before = h.state.Hash();
  StepSpec spec = h.Spec(4);
  spec.token_budget = 102;
  spec.refuse_over_budget = true;
  EXPECT_THAT(Ask(1, spec).message(), HasSubstr("a sequence of 103 tokens, token_budget is 102"));
  EXPECT_EQ(h.state.Hash(), before);
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
}

TEST_F(Replan, OfMiniBatchesWaitsForTheLaterStep) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  StepSpec spec = h.Spec(2);
  spec.mini_batches = 2;
  EXPECT_THAT(Ask(1, spec).message(), HasSubstr("step 2 is open"));
  ASSERT_TRUE(Ask(2, spec).ok());
  EXPECT_EQ(h.step(2).next_version.number, 3);
}

TEST_F(Replan, OfAnOpenStepKeepsWhatItHasAndWhatItAskedFor) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(3)}).ok());
  h.shards[0].AddReady({});
  h.Summarize();
  h.paused = true;
  h.shards[1].AddReady({});
  h.Summarize();
  ASSERT_EQ(h.step(1).requests.size(), 1);
  StepSpec spec = h.Spec(3);
  spec.token_budget = 300;
  ASSERT_TRUE(Ask(1, spec).ok());
  EXPECT_EQ(h.step(1).revision, Revision(2));
  EXPECT_EQ(h.step(1).groups.size(), 1);
  h.paused = false;
  h.Deliver();
  EXPECT_EQ(h.step(1).groups.size(), 2);
  h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_TRUE(h.Commit(1, 2).status.ok());
  EXPECT_EQ(h.shards[0].committed().size() + h.shards[1].committed().size(), 3);
}

TEST_F(Replan, OfAnOpenStepWithOtherWishesBeginsItsReservationsAnew) {
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(4)}).ok());
  h.shards[0].AddReady({});
  h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).groups.size(), 2);
  ASSERT_TRUE(Ask(1, h.Spec(1)).ok());
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).groups.size(), 1);
  EXPECT_EQ(h.shards[0].ready().size(), 1);
  EXPECT_EQ(h.shards[0].reserved(StepId(1)).size(), 1);
}

TEST_F(Replan, WithoutCustomAdvantagesSealsWhatWaitedForThem) {
  StepSpec spec = h.Spec(1);
  spec.custom_advantages = true;
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  ASSERT_EQ(h.step(1).state, StepState::kReserved);
  ASSERT_TRUE(Ask(1, h.Spec(1)).ok());
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  EXPECT_EQ(h.step(1).rollouts[1].advantage, 0.5f);
}

}  // namespace
}  // namespace forebay::ledger
