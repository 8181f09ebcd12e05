#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Steps : public ::testing::Test {
 protected:
  Steps() {
    h.PutTrainSource();
    h.Attach();
  }
  absl::Status Open(uint64_t step, const StepSpec& spec) {
    return h.Run(OpenStep{h.generation, StepId(step), spec});
  }
  Harness h{{.shards = 2}};
};

TEST_F(Steps, IsSealedWhenItHasItsGroups) {
  ASSERT_TRUE(Open(1, h.Spec(3)).ok());
  h.shards[0].AddReady({});
  h.shards[1].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kOpen);
  EXPECT_EQ(h.step(1).groups.size(), 2);
  h.changed.clear();
  h.shards[1].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_THAT(h.changed, ElementsAre(StepId(1)));
  EXPECT_EQ(h.step(1).revision, Revision(1));
  EXPECT_EQ(h.step(1).train_version.number, 0);
  EXPECT_EQ(h.step(1).next_version.number, 1);
}

TEST_F(Steps, NeverTakesMoreThanItLacks) {
  ASSERT_TRUE(Open(1, h.Spec(3)).ok());
  for (int i = 0; i < 5; ++i) h.shards[0].AddReady({}), h.shards[1].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).groups.size(), 3);
  EXPECT_EQ(h.shards[0].ready().size() + h.shards[1].ready().size(), 7);
}

TEST_F(Steps, ByTokensTakesGroupsUntilTheyHoldThem) {
  StepSpec spec = h.Spec(0);
  spec.tokens = 1000;  // a group has 406
  ASSERT_TRUE(Open(1, spec).ok());
  for (int i = 0; i < 5; ++i) h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).groups.size(), 3);
  EXPECT_EQ(h.step(1).totals.tokens, 3 * 406);
}

TEST_F(Steps, OpensInOrderAndNoFurtherThanTheLimit) {
  EXPECT_THAT(Open(2, h.Spec()).message(), HasSubstr("step: 2, but step 1 is not open yet"));
  ASSERT_TRUE(Open(1, h.Spec()).ok());
  ASSERT_TRUE(Open(2, h.Spec()).ok());
  const uint64_t before = h.state.Hash();
  const absl::Status third = Open(3, h.Spec());
  EXPECT_EQ(third.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(third.message(), HasSubstr("step: 3, at most 2: 2 steps (open_steps)"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(Steps, TheLogOfAStartWithAHigherLimitGivesTheSameState) {
  ASSERT_TRUE(Open(1, h.Spec()).ok());
  ASSERT_TRUE(Open(2, h.Spec()).ok());
  const Command third = OpenStep{h.generation, StepId(3), h.Spec()};
  Effects effects;
  h.state.Apply(third, 1, &effects);
  ASSERT_NE(h.state.step(StepId(3)), nullptr);
  EXPECT_TRUE(h.state.step(StepId(3))->live());
  EXPECT_EQ(h.state.InvariantsHold(), absl::OkStatus());
  EXPECT_TRUE(Open(3, h.Spec()).ok()) << "it is open, and may be asked for again";
  EXPECT_FALSE(Open(4, h.Spec()).ok());
}

TEST_F(Steps, EachTrainsOnTheVersionThatTheOneBeforeMakes) {
  StepSpec spec = h.Spec(4);
  spec.mini_batches = 4;
  ASSERT_TRUE(Open(1, spec).ok());
  ASSERT_TRUE(Open(2, h.Spec()).ok());
  EXPECT_EQ(h.step(1).next_version.number, 4);
  EXPECT_EQ(h.step(2).train_version.number, 4);
  EXPECT_EQ(h.step(2).next_version.number, 5);
}

TEST_F(Steps, TheSameSpecAgainChangesNothing) {
  StepSpec spec = h.Spec();
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  const uint64_t before = h.state.Hash();
  EXPECT_TRUE(Open(1, spec).ok());
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(Steps, SourcesCountInAnyOrder) {
  h.PutTrainSource("b");
  StepSpec spec = h.Spec();
  spec.sources = {SourceId(1), SourceId(0)};
  ASSERT_TRUE(Open(1, spec).ok());
  spec.sources = {SourceId(0), SourceId(1), SourceId(0)};
  EXPECT_TRUE(Open(1, spec).ok());
}

TEST_F(Steps, AnotherSpecIsRefusedByItsFirstDifference) {
  ASSERT_TRUE(Open(1, h.Spec(4)).ok());
  const uint64_t before = h.state.Hash();
  StepSpec spec = h.Spec(5);
  absl::Status status = Open(1, spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("groups: 5, not 4, as step 1 was opened"));
  spec = h.Spec(4);
  spec.token_budget = 1024;
  EXPECT_THAT(Open(1, spec).message(), HasSubstr("token_budget: 1024, not 512"));
  spec = h.Spec(4);
  spec.max_lag = 3;
  EXPECT_THAT(Open(1, spec).message(), HasSubstr("max_lag: 3, not none"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(Steps, TakeOnlyTheirSources) {
  const SourceId other = h.PutTrainSource("other");
  StepSpec spec = h.Spec(1);
  spec.sources = {other};
  ASSERT_TRUE(Open(1, spec).ok());
  h.shards[0].AddReady({}, SourceId(0));
  const GroupId wanted = h.shards[0].AddReady({}, other);
  h.Summarize();
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).groups[0].group, wanted);
}

TEST_F(Steps, CommitConsumesTheGroupsAndTellsTheShards) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  const auto reply = h.Commit(1);
  EXPECT_TRUE(reply.status.ok());
  EXPECT_FALSE(reply.already_committed);
  EXPECT_EQ(reply.next_version.number, 1);
  EXPECT_EQ(h.state.next_step(), StepId(2));
  EXPECT_EQ(h.shards[0].committed().size() + h.shards[1].committed().size(), 4);
  EXPECT_EQ(h.shards[0].Last<codec::StepCommitted>()->next.number, 1);
  EXPECT_EQ(h.step(1).state, StepState::kCommitted);
  EXPECT_TRUE(h.step(1).groups.empty());
  EXPECT_EQ(h.step(1).totals.groups, 4);
  EXPECT_EQ(h.state.counters().rollouts_committed, 16);
}

TEST_F(Steps, CommitAgainIsHarmless) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  const uint64_t before = h.state.Hash();
  const auto again = h.Commit(1);
  EXPECT_TRUE(again.status.ok());
  EXPECT_TRUE(again.already_committed);
  EXPECT_EQ(again.next_version.number, 1);
  EXPECT_EQ(h.state.Hash(), before);
  EXPECT_EQ(h.Commit(1, 2).status.code(), absl::StatusCode::kAborted);
}

TEST_F(Steps, CommitOutOfOrderOrUnsealedOrOfAnotherRevisionIsRefused) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(Open(2, h.Spec()).ok());
  const uint64_t before = h.state.Hash();
  EXPECT_THAT(h.Commit(2).status.message(), HasSubstr("step: 2, the next to commit is 1"));
  EXPECT_EQ(h.Commit(1, 2).status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.state.Hash(), before);
  ASSERT_TRUE(h.Commit(1).status.ok());
  const auto unsealed = h.Commit(2);
  EXPECT_EQ(unsealed.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(unsealed.status.message(), HasSubstr("step: 2 is not sealed"));
  EXPECT_THAT(h.Commit(3).status.message(), HasSubstr("step: 3, the next to commit is 2"));
}

TEST_F(Steps, ACommittedStepIsNotOpenedAgain) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_THAT(Open(1, h.Spec()).message(), HasSubstr("step: 1 is committed"));
  EXPECT_THAT(h.Run(AbortStep{h.generation, StepId(1), ""}).message(), HasSubstr("is committed"));
}

TEST_F(Steps, AbortReturnsTheGroupsAndTheNumberOpensAnew) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(4)).ok());
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), "diverged"}).ok());
  EXPECT_EQ(h.step(1).state, StepState::kAborted);
  EXPECT_EQ(h.step(1).failure, "diverged");
  EXPECT_EQ(h.shards[0].ready().size() + h.shards[1].ready().size(), 4);
  EXPECT_TRUE(h.Run(AbortStep{h.generation, StepId(1), ""}).ok()) << "again is harmless";
  ASSERT_TRUE(Open(1, h.Spec(2)).ok());
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  EXPECT_EQ(h.Commit(1, 1).status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(h.Commit(1, 2).status.ok());
}

TEST_F(Steps, AbortTakesTheLaterStepsAlong) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), "why"}).ok());
  EXPECT_EQ(h.step(2).state, StepState::kAborted);
  EXPECT_EQ(h.step(2).failure, "step 1: why");
  EXPECT_EQ(h.shards[0].ready().size() + h.shards[1].ready().size(), 4);
}

TEST_F(Steps, AbortOfALaterStepKeepsTheEarlierOne) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(2), ""}).ok());
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_TRUE(Open(2, h.Spec(2)).ok());
  EXPECT_EQ(h.step(2).revision, Revision(2));
}

// The shard answers the old request after the new one was sent; taking the old answer, or undoing
// it by name, would mix up the two plans.
TEST_F(Steps, AnAnswerToARequestOfAnAbortedPlanIsIgnored) {
  ASSERT_TRUE(Open(1, h.Spec(2)).ok());
  h.shards[0].AddReady({});
  h.shards[0].AddReady({});
  h.paused = true;
  h.Summarize();
  ASSERT_EQ(h.step(1).requests.size(), 1);
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), ""}).ok());
  ASSERT_TRUE(Open(1, h.Spec(2)).ok());
  h.Summarize();
  h.paused = false;
  h.Deliver();
  EXPECT_EQ(h.state.counters().stale_answers, 1);
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(1).revision, Revision(2));
  EXPECT_EQ(h.shards[0].reserved(StepId(1)).size(), 2);
  EXPECT_EQ(h.shards[0].revision(StepId(1)), Revision(2));
}

TEST_F(Steps, WhatCannotBePackedIsAbortedAndSaysWhy) {
  StepSpec spec = h.Spec(2);
  spec.token_budget = 102;
  spec.refuse_over_budget = true;  // the fourth rollout of a group has 103 tokens
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  EXPECT_EQ(h.step(1).state, StepState::kAborted);
  EXPECT_THAT(h.step(1).failure,
              AllOf(HasSubstr("rollout 0x"), HasSubstr(" of group 0x"),
                    HasSubstr("has a sequence of 103 tokens, token_budget is 102; 2 sequences"),
                    HasSubstr("raise token_budget, or unset refuse_over_budget")));
  EXPECT_EQ(h.state.counters().steps_unpackable, 1);
  EXPECT_EQ(h.shards[0].ready().size() + h.shards[1].ready().size(), 2);
  spec.refuse_over_budget = false;
  ASSERT_TRUE(Open(1, spec).ok());
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
}

TEST_F(Steps, CustomAdvantagesAreAwaited) {
  StepSpec spec = h.Spec(1);
  spec.custom_advantages = true;
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  EXPECT_EQ(h.step(1).state, StepState::kReserved);
  const uint64_t before = h.state.Hash();
  const auto put = [this](uint32_t revision, std::vector<float> advantages) {
    return h.Run(PutAdvantages{h.generation, StepId(1), Revision(revision), advantages});
  };
  EXPECT_THAT(put(1, {1, 2, 3}).message(), HasSubstr("advantages: 3, one for each of 4 rollouts"));
  EXPECT_THAT(put(1, {1, 2, NAN, 4}).message(), HasSubstr("advantages[2]: nan, must be finite"));
  EXPECT_EQ(put(2, {1, 2, 3, 4}).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.Commit(1).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.state.Hash(), before);
  ASSERT_TRUE(put(1, {1, 2, 3, 4}).ok());
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(h.step(1).sequences[i].advantage, i + 1);
  EXPECT_TRUE(put(1, {1, 2, 3, 4}).ok()) << "again is harmless";
  EXPECT_EQ(put(1, {1, 2, 3, 5}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Steps, AdvantagesForAStepThatBringsItsOwnAreRefused) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(1)).ok());
  EXPECT_THAT(h.Run(PutAdvantages{h.generation, StepId(1), Revision(1), {1, 2, 3, 4}}).message(),
              HasSubstr("without custom_advantages"));
}

TEST_F(Steps, OldCommitsAreForgotten) {
  for (uint64_t s = 1; s <= kCommittedStepsKept + 3; ++s) {
    ASSERT_TRUE(h.OpenFilled(s, h.Spec(1)).ok());
    ASSERT_TRUE(h.Commit(s).status.ok());
  }
  EXPECT_EQ(h.state.StepsNewestFirst().size(), kCommittedStepsKept);
  EXPECT_EQ(h.state.step(StepId(3)), nullptr);
  EXPECT_TRUE(h.Commit(4).already_committed);
  EXPECT_EQ(h.Commit(3).status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace forebay::ledger
