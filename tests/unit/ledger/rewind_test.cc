// Checkpoints, what stays until one covers it, and going back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kPlenty = uint64_t{1} << 40;
// Payloads of a step of two groups of four rollouts of 100 tokens, in the fake shard.
constexpr uint64_t kStepBytes = 8 * 1000;

class RewindTest : public testing::Test {
 protected:
  explicit RewindTest(uint32_t shards = 2) : h({.shards = shards}) {
    h.PutTrainSource();
    h.Attach();
    h.primary.SetRetentionBytesMax(kPlenty);
  }
  CheckpointReply Checkpoint(uint64_t step) {
    return h.Do<CheckpointReply>(CheckpointStep{h.generation, StepId(step)});
  }
  absl::Status Publish(uint32_t branch, uint32_t number) {
    return h.Run(PublishVersion{h.generation, {.version = {branch, number}, .where = "w"}});
  }
  std::vector<uint64_t> Live() const {
    std::vector<uint64_t> live;
    for (const Step* step : h.state.StepsNewestFirst()) {
      if (step->live()) live.insert(live.begin(), step->step.value);
    }
    return live;
  }

  Harness h;
};

TEST_F(RewindTest, CommittedStepsKeepTheirPlansUntilACheckpointCoversThem) {
  h.Train(3);
  EXPECT_EQ(h.state.retained_steps(), 3u);
  EXPECT_EQ(h.state.retained_bytes(), 3 * kStepBytes);
  EXPECT_THAT(h.shards[0].retained(), ElementsAre(1, 2, 3));
  EXPECT_EQ(h.step(1).rollouts.size(), 8u);
  const CheckpointReply reply = Checkpoint(2);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.checkpoint, StepId(2));
  EXPECT_EQ(h.state.retained_bytes(), kStepBytes);
  EXPECT_THAT(h.shards[1].retained(), ElementsAre(3));
  EXPECT_THAT(h.step(2).rollouts, IsEmpty());
  EXPECT_EQ(h.state.counters().steps_released, 0u) << "a checkpoint covers them, nothing is lost";
}

TEST_F(RewindTest, EachMessageThatReleasesSaysWhatAShardKeepsForPeople) {
  h.primary.SetKeep({0.5, true, 1'000}, 0);
  h.Train(3);
  const codec::KeepRule share{0.5, true, 500};
  EXPECT_EQ(h.shards[0].Last<codec::StepCommitted>()->keep, share) << "of two shards";
  h.primary.SetKeep({0.25, false, 100}, 0);
  ASSERT_TRUE(Checkpoint(1).status.ok());
  const codec::KeepRule later{0.25, false, 50};
  EXPECT_EQ(h.shards[1].Last<codec::StepsCovered>()->keep, later);
  // What is released because its bytes are lost goes by what was said last.
  const RolloutId lost = h.step(3).rollouts[0].rollout;
  h.shards[lost.shard().value].Tell(StepId(3), lost);
  h.Deliver();
  ASSERT_NE(h.shards[0].Last<codec::StepsReleased>(), nullptr);
  EXPECT_EQ(h.shards[0].Last<codec::StepsReleased>()->keep, later);
  // The commands that are logged hold what the configuration said, whoever applies them.
  uint64_t seen = 0;
  for (const Command& command : h.log) {
    const auto* commit = std::get_if<CommitStep>(&command);
    if (commit == nullptr) continue;
    EXPECT_EQ(commit->keep, (codec::KeepRule{0.5, true, 1'000}));
    ++seen;
  }
  EXPECT_EQ(seen, 3u);
}

TEST_F(RewindTest, ACheckpointThatChangesNothingChangesNoRule) {
  h.Train(2);
  ASSERT_TRUE(Checkpoint(2).status.ok());
  const uint64_t before = h.state.Hash();
  h.primary.SetKeep({1, true, 1'000}, 0);
  ASSERT_TRUE(Checkpoint(1).status.ok());
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(RewindTest, AnOlderCheckpointChangesNothing) {
  h.Train(3);
  ASSERT_TRUE(Checkpoint(3).status.ok());
  const uint64_t before = h.state.Hash();
  const CheckpointReply reply = Checkpoint(1);
  ASSERT_TRUE(reply.status.ok());
  EXPECT_EQ(reply.checkpoint, StepId(3));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST_F(RewindTest, OnlyCommittedStepsOfThisGenerationAreCovered) {
  h.Train(2);
  EXPECT_EQ(Checkpoint(3).status,
            absl::FailedPreconditionError("step: 3 is not committed; the last one that is: 2"));
  EXPECT_EQ(Checkpoint(0).status, absl::InvalidArgumentError("step: 0, steps count from 1"));
  const auto old = h.Do<CheckpointReply>(CheckpointStep{Generation(9), StepId(1)});
  EXPECT_EQ(old.status.code(), absl::StatusCode::kInvalidArgument);
  h.Train(kCommittedStepsKept + 1);
  EXPECT_EQ(Checkpoint(1).status,
            absl::FailedPreconditionError("step: 1 was committed more than 64 steps ago"));
}

TEST_F(RewindTest, BeyondTheLimitTheOldestStepLosesItsPayloads) {
  h.primary.SetRetentionBytesMax(2 * kStepBytes + 10);
  h.Train(4);
  EXPECT_EQ(h.state.retained_bytes(), 2 * kStepBytes);
  EXPECT_THAT(h.shards[0].retained(), ElementsAre(3, 4));
  EXPECT_EQ(h.state.counters().steps_released, 2u);
  EXPECT_THAT(
      h.GoBack(1, true).status.message(),
      HasSubstr("the payloads of step 2 are gone (storage.retention_bytes_max), so that the "
                "oldest step to replay from is 2, not 1; ask for fresh rollouts instead"));
  EXPECT_TRUE(h.GoBack(1, false).status.ok());
}

TEST_F(RewindTest, ALowerLimitTakesHoldWithoutACommit) {
  h.Train(4);
  EXPECT_EQ(h.state.retained_bytes(), 4 * kStepBytes);
  h.primary.SetRetentionBytesMax(2 * kStepBytes);
  EXPECT_LE(h.primary.NextTick(), h.now);
  h.Act([&](Output* output) { h.primary.Tick(h.now, output); });
  EXPECT_THAT(h.shards[0].retained(), ElementsAre(3, 4));
  EXPECT_EQ(h.state.counters().steps_released, 2u);
  // Nothing more.
  EXPECT_EQ(h.primary.NextTick(), Primary::kNever);
  h.Act([&](Output* output) {
    h.primary.Tick(h.now, output);
    EXPECT_TRUE(output->commands.empty());
  });
}

TEST_F(RewindTest, AFullStoreTakesTheOlderHalfAgainAndAgain) {
  h.Train(4);
  const auto tick = [&](uint64_t after_ms, bool full) {
    h.now += after_ms;
    h.primary.SetStoreFull(h.now, full);
    h.Act([&](Output* output) { h.primary.Tick(h.now, output); });
    return h.shards[0].retained();
  };
  EXPECT_THAT(tick(0, true), ElementsAre(1, 2, 3, 4));  // it may be over soon
  EXPECT_THAT(tick(kTrimPauseMs - 1, true), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(tick(1, true), ElementsAre(3, 4));
  EXPECT_THAT(tick(kTrimPauseMs - 1, true), ElementsAre(3, 4));
  EXPECT_THAT(tick(1, true), ElementsAre(4));
  EXPECT_THAT(tick(kTrimPauseMs, false), ElementsAre(4));
  EXPECT_THAT(tick(kTrimPauseMs, true), ElementsAre(4));
  EXPECT_THAT(tick(kTrimPauseMs, true), IsEmpty());
  EXPECT_THAT(tick(kTrimPauseMs, true), IsEmpty());
  EXPECT_EQ(h.state.counters().steps_released, 4u);
}

TEST_F(RewindTest, AFullStoreTakesTheOlderHalfOfWhatIsKeptForPeopleAndAddsNothing) {
  h.primary.SetKeep({0.5, true, 10'000}, 8'000);
  h.Train(2);
  const auto tick = [&](uint64_t after_ms, bool full) {
    h.now += after_ms;
    h.primary.SetStoreFull(h.now, full);
    h.Act([&](Output* output) { h.primary.Tick(h.now, output); });
    const auto* released = h.shards[0].Last<codec::StepsReleased>();
    return released == nullptr ? codec::KeepRule() : released->keep;
  };
  EXPECT_EQ(tick(kTrimPauseMs, false), codec::KeepRule());
  EXPECT_EQ(tick(kTrimPauseMs, true), codec::KeepRule());  // it may be over soon
  EXPECT_EQ(tick(kTrimPauseMs, true), (codec::KeepRule{0, false, 2'000})) << "a half, by shard";
  h.primary.SetKeep({0.5, true, 10'000}, 4'000);
  h.Train(1);
  EXPECT_EQ(h.shards[0].Last<codec::StepCommitted>()->keep, (codec::KeepRule{0, false, 5'000}));
  // Also with nothing left to release.
  ASSERT_TRUE(Checkpoint(3).status.ok());
  EXPECT_EQ(tick(kTrimPauseMs, true), (codec::KeepRule{0, false, 1'000}));
  h.primary.SetKeep({0.5, true, 10'000}, 0);
  const size_t before = h.shards[0].Count<codec::StepsReleased>();
  tick(kTrimPauseMs, true);
  EXPECT_EQ(h.shards[0].Count<codec::StepsReleased>(), before);
  tick(0, false);
  h.Train(1);
  EXPECT_EQ(h.shards[0].Last<codec::StepCommitted>()->keep, (codec::KeepRule{0.5, true, 5'000}));
}

TEST_F(RewindTest, ALowerLimitOfWhatIsKeptForPeopleTakesHoldWithoutACommit) {
  h.primary.SetKeep({0.5, true, 3'000}, 8'000);
  h.Train(2);
  const auto tick = [&](uint64_t after_ms) {
    h.now += after_ms;
    h.Act([&](Output* output) { h.primary.Tick(h.now, output); });
    return h.shards[0].Count<codec::StepsReleased>();
  };
  EXPECT_EQ(tick(1), 1u);
  EXPECT_EQ(h.shards[0].Last<codec::StepsReleased>()->keep, (codec::KeepRule{0.5, true, 1'500}));
  EXPECT_THAT(h.shards[0].retained(), ElementsAre(1, 2)) << "they stay for a rewind";
  EXPECT_EQ(tick(1), 1u) << "the shards say what they keep a moment later";
  h.primary.SetKeep({0.5, true, 3'000}, 3'000);
  EXPECT_EQ(tick(kTrimPauseMs), 1u);
}

TEST_F(RewindTest, AStepThatIsLargerThanTheLimitLosesItsPayloadsAtOnceAndTheOlderOnesWithIt) {
  h.primary.SetRetentionBytesMax(kStepBytes);
  h.Train(1);
  h.Train(1, 3);
  EXPECT_EQ(h.state.retained_steps(), 0u);
  EXPECT_THAT(h.shards[0].retained(), IsEmpty());
  EXPECT_EQ(h.state.counters().steps_released, 2u);
  EXPECT_EQ(h.state.oldest_replay(), StepId(2));
}

TEST_F(RewindTest, WithoutRetentionPayloadsGoWithTheCommitAndNothingIsCounted) {
  h.primary.SetRetentionBytesMax(0);
  h.Train(2);
  EXPECT_EQ(h.state.retained_steps(), 0u);
  EXPECT_EQ(h.state.counters().steps_released, 0u);
  EXPECT_FALSE(h.shards[0].Last<codec::StepCommitted>()->retain);
  EXPECT_EQ(h.shards[0].Count<codec::StepsReleased>(), 0u);
}

TEST_F(RewindTest, ARunWithoutCheckpointsKeepsTheNewestSteps) {
  h.Train(kCommittedStepsKept + 10);
  EXPECT_EQ(h.state.retained_steps(), kCommittedStepsKept);
  EXPECT_EQ(h.state.oldest_replay(), StepId(10));
  EXPECT_EQ(h.GoBack(5).status,
            absl::FailedPreconditionError(
                "step: 5 was committed more than 64 steps ago; go back to 11 or later, or to 0, "
                "which the last checkpoint covers"));
}

TEST_F(RewindTest, GoingBackBeginsABranchWithTheVersionThatTheStepMade) {
  h.Train(4);
  ASSERT_TRUE(Publish(0, 4).ok());
  ASSERT_TRUE(h.OpenFilled(5, h.Spec()).ok());
  const RewindReply reply = h.GoBack(2);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.next_step, StepId(3));
  EXPECT_EQ(reply.train_version, (PolicyVersion{1, 2}));
  EXPECT_EQ(reply.taken_back, 2u);
  EXPECT_EQ(reply.served_again, 0u);
  EXPECT_EQ(h.state.next_step(), StepId(3));
  EXPECT_EQ(h.state.committed_version(), (PolicyVersion{1, 2}));
  EXPECT_THAT(Live(), IsEmpty()) << "the open step is aborted";
  EXPECT_EQ(h.state.step(StepId(4)), nullptr);
  const codec::Rewound& told = *h.shards[1].Last<codec::Rewound>();
  EXPECT_EQ(told.step, StepId(2));
  EXPECT_EQ(told.served_again, StepId(2));
  EXPECT_EQ(told.version, (PolicyVersion{1, 2}));
  EXPECT_EQ(told.versions.branch, 1u);
  EXPECT_EQ(told.versions.published, (PolicyVersion{0, 4}))
      << "nothing of the branch can be loaded";
  EXPECT_THAT(h.shards[0].retained(), ElementsAre(1, 2));
}

TEST_F(RewindTest, EveryRankAttachesAnew) {
  h.Train(2);
  const Generation old = h.generation;
  ASSERT_TRUE(h.GoBack(1).status.ok());
  EXPECT_EQ(h.Run(OpenStep{old, StepId(2), h.Spec()}),
            absl::AbortedError("generation 1 is over; 2 began"));
  EXPECT_THAT(h.state.places(), IsEmpty());
  h.Attach();
  EXPECT_EQ(h.generation, Generation(2)) << "the same processes take their places again";
  const auto reply = h.Do<AttachReply>(AttachTrainer{"t", 100, h.mesh, 0, 0, StepId(2)});
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.next_step, StepId(2));
  EXPECT_EQ(reply.train_version, (PolicyVersion{1, 1}));
}

TEST_F(RewindTest, TheNewBranchIsPublishedFromItsBeginningOn) {
  h.Train(3);
  ASSERT_TRUE(Publish(0, 3).ok());
  ASSERT_TRUE(h.GoBack(1).status.ok());
  h.Attach();
  EXPECT_EQ(Publish(0, 3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Publish(1, 0), absl::FailedPreconditionError(
                               "version: 1/0, at least 1/1, with which the branch begins"));
  EXPECT_EQ(Publish(1, 2).code(), absl::StatusCode::kFailedPrecondition) << "from the future";
  EXPECT_TRUE(Publish(1, 1).ok());
  EXPECT_EQ(h.state.versions().published, (PolicyVersion{1, 1}));
}

TEST_F(RewindTest, AnEngineMayStillHoldWeightsOfTheOldBranch) {
  h.Train(3);
  ASSERT_TRUE(Publish(0, 3).ok());
  ASSERT_TRUE(h.GoBack(1).status.ok());
  EXPECT_TRUE(h.Run(ReportAdoption{"e", {0, 3}, 0, 0}).ok());
  EXPECT_FALSE(h.Run(ReportAdoption{"e", {1, 1}, 0, 0}).ok()) << "nobody has announced it";
}

TEST_F(RewindTest, PlansOfTheNewBranchHaveLaterRevisions) {
  h.Train(1);
  StepSpec other = h.Spec(2);
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  other.token_budget = 1024;
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), other, true}).ok());
  ASSERT_EQ(h.step(2).revision, Revision(2));
  ASSERT_TRUE(h.GoBack(0).status.ok());
  h.Attach();
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(2)).ok());
  EXPECT_EQ(h.step(1).revision, Revision(3));
  ASSERT_TRUE(h.Commit(1, 3).status.ok());
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  EXPECT_EQ(h.step(2).revision, Revision(3));
}

TEST_F(RewindTest, NothingGoesBackBelowTheCheckpointOrToWhatIsNotCommitted) {
  h.Train(4);
  ASSERT_TRUE(Checkpoint(2).status.ok());
  EXPECT_EQ(h.GoBack(1).status,
            absl::FailedPreconditionError("step: 1, at least 2, which the last checkpoint covers"));
  EXPECT_EQ(h.GoBack(5).status,
            absl::FailedPreconditionError("step: 5 is not committed; the last one that is: 4"));
  EXPECT_TRUE(h.GoBack(2).status.ok());
}

TEST_F(RewindTest, TheCheckpointCanBeGoneBackToFromAnywhere) {
  h.Train(3);
  ASSERT_TRUE(Checkpoint(3).status.ok());
  h.Train(kCommittedStepsKept + 20);
  ASSERT_EQ(h.state.step(StepId(3)), nullptr);
  const RewindReply reply = h.GoBack(3);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.taken_back, kCommittedStepsKept + 20);
  EXPECT_EQ(reply.train_version, (PolicyVersion{1, 3}));
  h.Attach();
  h.Train(2);
  EXPECT_EQ(h.state.committed_version(), (PolicyVersion{1, 5}));
}

TEST_F(RewindTest, TheSameRequestAgainIsAnsweredTheSameAndChangesNothing) {
  h.Train(3);
  const Rewind rewind{77, h.generation, StepId(1), false, "it diverged"};
  const auto first = h.Do<RewindReply>(rewind);
  ASSERT_TRUE(first.status.ok());
  h.Attach();
  h.Train(1);
  const uint64_t before = h.state.Hash();
  const auto again = h.Do<RewindReply>(rewind);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.next_step, first.next_step);
  EXPECT_EQ(again.train_version, first.train_version);
  EXPECT_EQ(h.state.Hash(), before);
  Rewind other = rewind;
  other.replay = true;
  EXPECT_EQ(h.Do<RewindReply>(other).status,
            absl::InvalidArgumentError(
                "request_id: 77 was of a fresh rewind to step 1; choose another one"));
  EXPECT_EQ(h.Do<RewindReply>(Rewind{0, h.generation, StepId(1)}).status,
            absl::InvalidArgumentError("request_id: 0, any number but 0"));
}

TEST_F(RewindTest, AnOperatorNeedsNoGenerationAndAZombieIsRefused) {
  h.Train(3);
  const auto zombie = h.Do<RewindReply>(Rewind{5, Generation(7), StepId(1)});
  EXPECT_EQ(zombie.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(h.Do<RewindReply>(Rewind{6, Generation(), StepId(1)}).status.ok());
  const auto late = h.Do<RewindReply>(Rewind{7, Generation(1), StepId(1)});
  EXPECT_EQ(late.status, absl::AbortedError("generation 1 is over; 2 began"));
}

TEST_F(RewindTest, ReplayServesTheSamePlansAgainInOrder) {
  h.Train(4);
  std::vector<MicroBatchView> before;
  h.GoBack(4);  // a plan that is served again under another branch first
  h.Attach();
  h.Train(1);
  const uint64_t hash = h.step(5).plan_hash;
  const Revision revision = h.step(5).revision;
  const RewindReply reply = h.GoBack(3, true);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.taken_back, 2u);
  EXPECT_EQ(reply.served_again, 2u);
  EXPECT_THAT(Live(), ElementsAre(4, 5));
  EXPECT_EQ(h.step(5).plan_hash, hash);
  EXPECT_EQ(h.step(5).revision, revision);
  EXPECT_EQ(h.step(4).train_version, (PolicyVersion{2, 3}));
  EXPECT_EQ(h.step(5).next_version, (PolicyVersion{2, 5}));
  EXPECT_EQ(h.shards[0].reserved(StepId(4)).size(), 1u);
  h.Attach();
  EXPECT_EQ(h.Commit(5, revision.value).status.code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(4), h.Spec(2)}).ok());
  EXPECT_EQ(h.step(4).state, StepState::kSealed);
  ASSERT_TRUE(h.state.ViewMicroBatch(StepId(4), h.step(4).revision, {}).ok());
  ASSERT_TRUE(h.Commit(4, h.step(4).revision.value).status.ok());
  ASSERT_TRUE(h.Commit(5, revision.value).status.ok());
  EXPECT_EQ(h.state.committed_version(), (PolicyVersion{2, 5}));
  EXPECT_THAT(h.shards[0].retained(), ElementsAre(1, 2, 3, 4, 5));
  h.Train(1);
}

TEST_F(RewindTest, AReplayThatIsBrokenOffCanBeReplayed) {
  h.Train(4);
  ASSERT_TRUE(h.OpenFilled(5, h.Spec(2)).ok());
  ASSERT_EQ(h.GoBack(1, true).served_again, 3u);
  EXPECT_THAT(Live(), ElementsAre(2, 3, 4)) << "what was open after them is aborted";
  h.Attach();
  ASSERT_TRUE(h.Commit(2, h.step(2).revision.value).status.ok());
  ASSERT_EQ(h.GoBack(1, true).served_again, 3u);
  EXPECT_THAT(Live(), ElementsAre(2, 3, 4));
  EXPECT_EQ(h.step(4).next_version, (PolicyVersion{2, 4}));
  h.Attach();
  ASSERT_EQ(h.GoBack(1, false).served_again, 0u);
  EXPECT_THAT(Live(), IsEmpty());
  h.Attach();
  h.Train(2);
}

TEST_F(RewindTest, AReplayGoesNoFurtherBackThanWhatIsLost) {
  h.Train(4);
  const RolloutId gone = h.step(2).rollouts[0].rollout;
  h.shards[gone.shard().value].Lose(StepId(2), gone);
  h.Deliver();
  EXPECT_EQ(h.state.oldest_replay(), StepId(2));
  EXPECT_EQ(h.state.counters().steps_released, 2u) << "it, and the one before it";
  EXPECT_EQ(h.GoBack(1, true).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.GoBack(2, true).served_again, 2u);
}

TEST_F(RewindTest, AStepThatIsServedAgainAndLostARolloutTakesFreshGroups) {
  h.Train(4);
  ASSERT_EQ(h.GoBack(2, true).served_again, 2u);
  h.Attach();
  const Revision before = h.step(3).revision;
  const RolloutId gone = h.step(3).rollouts[0].rollout;
  h.shards[gone.shard().value].Lose(StepId(3), gone);
  h.Deliver();
  EXPECT_EQ(h.step(3).state, StepState::kOpen);
  EXPECT_FALSE(h.step(3).served_again);
  EXPECT_GT(h.step(3).revision, before);
  EXPECT_EQ(h.step(4).state, StepState::kSealed) << "the one after it is served as it was";
  EXPECT_TRUE(h.step(4).served_again);
}

// What the steps behind it hold is more than admission lets in, and would keep them out.
TEST_F(RewindTest, FreshGroupsForAStepThatIsServedAgainAreAdmitted) {
  h.Train(6);
  ASSERT_EQ(h.GoBack(2, true).served_again, 4u);
  h.Attach();
  const auto admitted = [this] {
    const uint64_t versions = h.state.sources()[0].settings.max_lag + 1;
    return versions * h.shards[0].Last<codec::VersionState>()->rollouts_per_version;
  };
  const uint64_t before = admitted();
  const RolloutId gone = h.step(3).rollouts[0].rollout;
  h.shards[gone.shard().value].Lose(StepId(3), gone);
  h.Deliver();
  ASSERT_EQ(h.step(3).state, StepState::kOpen);
  const uint64_t behind = 3 * 8, lacking = 8;
  EXPECT_GE(admitted(), behind + lacking);
  h.Summarize();
  h.shards[0].AddReady({.version = 2});
  h.Summarize();
  ASSERT_EQ(h.step(3).state, StepState::kSealed);
  EXPECT_EQ(admitted(), before);
}

TEST_F(RewindTest, AStepThatIsServedAgainKeepsItsPlanWhenAColumnIsLost) {
  h.Train(2);
  ASSERT_EQ(h.GoBack(1, true).served_again, 1u);
  h.Attach();
  const Revision before = h.step(2).revision;
  const uint64_t hash = h.step(2).plan_hash;
  const uint64_t tokens = h.state.ViewMicroBatch(StepId(2), before, {})->tokens;
  const WrittenColumn column{"old_logprobs", 11, {}, PayloadId(5), tokens * 4};
  ASSERT_TRUE(h.Run(PutColumns{h.generation, StepId(2), before, {}, {column}}).ok());
  ASSERT_TRUE(h.Run(DropDamaged{{PayloadId(5)}}).ok());
  EXPECT_EQ(h.step(2).state, StepState::kSealed);
  EXPECT_EQ(h.step(2).plan_hash, hash);
  EXPECT_TRUE(h.step(2).written.empty());
  EXPECT_EQ(h.Commit(2, before.value).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(h.Commit(2, h.step(2).revision.value).status.ok());
}

TEST_F(RewindTest, AStepThatIsServedAgainCanBePackedForAnotherMesh) {
  h.Train(2);
  ASSERT_TRUE(h.GoBack(1, true).status.ok());
  h.Attach(1);
  StepSpec spec = h.Spec(2);
  EXPECT_FALSE(h.Run(OpenStep{h.generation, StepId(2), spec}).ok());
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), spec, true}).ok());
  EXPECT_EQ(h.step(2).revision, Revision(2));
  EXPECT_EQ(h.step(2).totals.dp, 1u);
  ASSERT_TRUE(h.Commit(2, 2).status.ok());
}

TEST_F(RewindTest, AWrittenColumnDiesWithTheStepThatIsTakenBack) {
  h.Train(1);
  ASSERT_TRUE(h.OpenFilled(2, h.Spec(2)).ok());
  const auto view = h.state.ViewMicroBatch(StepId(2), Revision(1), {});
  ASSERT_TRUE(view.ok());
  const WrittenColumn column{"values", 11, {}, PayloadId(999), view->tokens * 4};
  ASSERT_TRUE(h.Run(PutColumns{h.generation, StepId(2), Revision(1), {}, {column}}).ok());
  ASSERT_TRUE(h.GoBack(1).status.ok());
  EXPECT_THAT(h.dead, ElementsAre(PayloadId(999)));
}

TEST_F(RewindTest, AnAnswerToARequestOfTheOldBranchIsPassedOver) {
  h.Train(1);
  h.paused = true;
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec(2)}).ok());
  for (auto& shard : h.shards) shard.AddReady({});
  h.Summarize();
  ASSERT_FALSE(h.step(2).requests.empty());
  ASSERT_TRUE(h.GoBack(1).status.ok());
  h.paused = false;
  h.Deliver();
  EXPECT_GT(h.state.counters().stale_answers, 0u);
  for (auto& shard : h.shards) EXPECT_THAT(shard.reserved(StepId(2)), IsEmpty());
  h.Attach();
  h.Train(1);
}

TEST_F(RewindTest, ARunThatHasTrainedNothingCanGoBackToItsBeginning) {
  Harness fresh;
  EXPECT_TRUE(fresh.Do<RewindReply>(Rewind{1, Generation(), StepId(0)}).status.ok());
  EXPECT_EQ(fresh.state.committed_version(), (PolicyVersion{1, 0}));
  EXPECT_EQ(fresh.state.generation(), Generation());
}

TEST_F(RewindTest, SnapshotsHoldIt) {
  h.Train(3);
  ASSERT_TRUE(Checkpoint(1).status.ok());
  ASSERT_TRUE(h.GoBack(2, true).status.ok());
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State restored({.shards = 2});
  codec::Reader reader(bytes);
  ASSERT_TRUE(restored.Restore(reader));
  EXPECT_EQ(restored.Hash(), h.state.Hash());
}

}  // namespace
}  // namespace forebay::ledger
