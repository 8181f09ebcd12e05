#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AttachTrainer Attach(uint64_t process, uint32_t rank, uint32_t dp = 2) {
  AttachTrainer attach;
  attach.trainer = "t";
  attach.process = process;
  attach.mesh.dp = dp;
  attach.dp_rank = rank;
  return attach;
}

TEST(Trainers, RanksOfOneStartShareAGeneration) {
  Harness h;
  EXPECT_EQ(h.Do<AttachReply>(Attach(1, 0)).generation, Generation(1));
  const auto reply = h.Do<AttachReply>(Attach(2, 1));
  EXPECT_EQ(reply.generation, Generation(1));
  EXPECT_EQ(reply.next_step, StepId(1));
  EXPECT_EQ(reply.train_version, (PolicyVersion{0, 0}));
  EXPECT_EQ(h.state.places().size(), 2);
}

TEST(Trainers, NoTrainerOfAnotherRunFits) {
  Harness h;
  h.primary.SetFirstGeneration(5'001);
  h.Attach();
  EXPECT_EQ(h.generation, Generation(5'001));
  h.generation = Generation(1);  // as another run gave it out
  EXPECT_FALSE(h.Run(OpenStep{h.generation, StepId(1), h.Spec()}).ok());
  EXPECT_FALSE(h.Commit(1).status.ok());
  h.Attach(1);
  EXPECT_EQ(h.generation, Generation(5'002));
}

TEST(Trainers, AttachingAgainChangesNothing) {
  Harness h;
  h.Do<AttachReply>(Attach(1, 0));
  const uint64_t before = h.state.Hash();
  EXPECT_EQ(h.Do<AttachReply>(Attach(1, 0)).generation, Generation(1));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST(Trainers, APlaceThatIsTakenBeginsTheNextGeneration) {
  Harness h;
  h.Do<AttachReply>(Attach(1, 0));
  h.Do<AttachReply>(Attach(2, 1));
  EXPECT_EQ(h.Do<AttachReply>(Attach(3, 0)).generation, Generation(2));
  ASSERT_EQ(h.state.places().size(), 1);
  EXPECT_EQ(h.state.places()[0].process, 3);
  // The other rank lives on and joins.
  EXPECT_EQ(h.Do<AttachReply>(Attach(2, 1)).generation, Generation(2));
}

TEST(Trainers, AnotherMeshBeginsTheNextGeneration) {
  Harness h;
  h.Do<AttachReply>(Attach(1, 0));
  EXPECT_EQ(h.Do<AttachReply>(Attach(2, 1, 3)).generation, Generation(2));
  EXPECT_EQ(h.state.mesh().dp, 3);
}

TEST(Trainers, AProcessThatLostItsPlaceDoesNotTakeItBack) {
  Harness h;
  h.Do<AttachReply>(Attach(1, 0));
  h.Do<AttachReply>(Attach(3, 0));
  const uint64_t before = h.state.Hash();
  const auto reply = h.Do<AttachReply>(Attach(1, 0));
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(reply.status.message(), HasSubstr("process 1 lost its place"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST(Trainers, ANewGenerationWakesThoseWhoWaitUnderTheOldOne) {
  Harness h;
  h.PutTrainSource();
  h.Attach();
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec()}).ok());
  h.changed.clear();
  h.Do<AttachReply>(Attach(7, 0));
  EXPECT_THAT(h.changed, ElementsAre(StepId(1)));
}

TEST(Trainers, OlderGenerationsAreRefusedInEveryCall) {
  Harness h;
  h.PutTrainSource();
  h.Attach();
  const Generation old = h.generation;
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  h.Do<AttachReply>(Attach(7, 0));
  const uint64_t before = h.state.Hash();
  const std::vector<Command> calls = {
      OpenStep{old, StepId(1), h.Spec()},
      PutAdvantages{old, StepId(1), Revision(1), {}},
      PutColumns{old, StepId(1), Revision(1), {}, {}},
      AbortStep{old, StepId(1), ""},
      PublishVersion{old, {}},
  };
  for (const Command& call : calls) {
    const absl::Status status = h.Run(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(status.message(), "generation 1 is over; 2 began");
  }
  EXPECT_EQ(h.Do<CommitReply>(CommitStep{old, StepId(1), Revision(1)}).status.code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(h.state.Hash(), before);
}

TEST(Trainers, AGenerationThatNeverBeganIsRefused) {
  Harness h;
  EXPECT_EQ(h.Run(OpenStep{Generation(0), StepId(1), h.Spec()}).code(),
            absl::StatusCode::kInvalidArgument);
  h.Attach();
  EXPECT_THAT(h.Run(OpenStep{Generation(5), StepId(1), h.Spec()}).message(),
              HasSubstr("generation: 5, the newest is 1"));
}

TEST(Trainers, ResumeNamesTheNextStepToCommit) {
  Harness h;
  h.PutTrainSource();
  h.Attach(1);
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Commit(1).status.ok());
  AttachTrainer attach = Attach(9, 0, 1);
  attach.resume_step = StepId(1);
  const auto refused = h.Do<AttachReply>(attach);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status.message(),
              HasSubstr("resume_step: 1, but the next step to commit is 2"));
  EXPECT_EQ(h.state.generation(), h.generation);
  attach.resume_step = StepId(2);
  const auto reply = h.Do<AttachReply>(attach);
  EXPECT_TRUE(reply.status.ok());
  EXPECT_EQ(reply.next_step, StepId(2));
  EXPECT_EQ(reply.train_version.number, 1);
}

TEST(Trainers, ACrashedTrainerFindsItsOpenSteps) {
  Harness h;
  h.PutTrainSource();
  h.Attach(1);
  ASSERT_TRUE(h.OpenFilled(1, h.Spec()).ok());
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(2), h.Spec()}).ok());
  EXPECT_THAT(h.Do<AttachReply>(Attach(9, 0, 1)).open_steps, ElementsAre(StepId(1), StepId(2)));
}

}  // namespace
}  // namespace forebay::ledger
