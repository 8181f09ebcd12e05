// Requests that no well-meaning trainer sends: each is refused by field, value and limit, and
// changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::HasSubstr;

struct BadSpec {
  const char* names;  // what the refusal must name
  void (*spoil)(StepSpec&);
};

class BadStep : public ::testing::TestWithParam<BadSpec> {};

TEST_P(BadStep, IsRefusedByTheNameOfTheField) {
  Harness h;
  h.PutTrainSource();
  codec::SourceSettings eval;
  eval.name = "eval";
  eval.purpose = codec::Purpose::kEval;
  ASSERT_TRUE(h.Do<PutSourceReply>(PutSource{eval}).status.ok());
  h.Attach();
  StepSpec spec = h.Spec();
  GetParam().spoil(spec);
  const uint64_t before = h.state.Hash();
  const absl::Status status = h.Run(OpenStep{h.generation, StepId(1), spec});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().names));
  EXPECT_EQ(h.state.Hash(), before);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadStep,
    ::testing::Values(
        BadSpec{"tokens (groups is 0): 0, from 1", [](StepSpec& s) { s.groups = 0; }},
        BadSpec{"groups: 1000001, from 1 to 1000000", [](StepSpec& s) { s.groups = 1'000'001; }},
        BadSpec{"tokens (groups is not 0): 5", [](StepSpec& s) { s.tokens = 5; }},
        BadSpec{"mesh.dp: 0", [](StepSpec& s) { s.mesh.dp = 0; }},
        BadSpec{"mesh.dp: 65537", [](StepSpec& s) { s.mesh.dp = 65'537; }},
        BadSpec{"mesh.dp: 3, but the trainer attached with 2", [](StepSpec& s) { s.mesh.dp = 3; }},
        BadSpec{"mesh.tp: 0", [](StepSpec& s) { s.mesh.tp = 0; }},
        BadSpec{"mesh.tp * pp * cp", [](StepSpec& s) { s.mesh.tp = s.mesh.pp = s.mesh.cp = 100; }},
        BadSpec{"micro_batches_multiple_of: 0",
                [](StepSpec& s) { s.mesh.micro_batches_multiple_of = 0; }},
        BadSpec{"token_budget: 0", [](StepSpec& s) { s.token_budget = 0; }},
        BadSpec{"token_budget: 4294967296", [](StepSpec& s) { s.token_budget = 1ull << 32; }},
        BadSpec{"mini_batches: 0", [](StepSpec& s) { s.mini_batches = 0; }},
        BadSpec{"mini_batches: 4097", [](StepSpec& s) { s.mini_batches = 4097; }},
        BadSpec{"mini_batches (groups_whole): 5, from 1 to 4",
                [](StepSpec& s) { s.mini_batches = 5, s.groups_whole = true; }},
        BadSpec{"pad_multiple: 0", [](StepSpec& s) { s.pad_multiple = 0; }},
        BadSpec{"pad_multiple: 513, from 1 to 512", [](StepSpec& s) { s.pad_multiple = 513; }},
        BadSpec{
            "mesh.dp * micro_batches_multiple_of * mini_batches",
            [](StepSpec& s) { s.mesh.micro_batches_multiple_of = 65'536, s.mini_batches = 4096; }},
        BadSpec{"max_lag: 1000001", [](StepSpec& s) { s.max_lag = 1'000'001; }},
        BadSpec{"sources: 2 is unknown; there are 2",
                [](StepSpec& s) { s.sources = {SourceId(2)}; }},
        BadSpec{"sources: eval is for evaluation", [](StepSpec& s) { s.sources = {SourceId(1)}; }},
        BadSpec{"linear", [](StepSpec& s) { s.cost_linear = -1; }},
        BadSpec{"quadratic", [](StepSpec& s) { s.cost_quadratic = NAN; }},
        BadSpec{"cost_table[1].tokens: 8, from 9", [](StepSpec& s) {
                  s.cost_table = {{8, 1}, {8, 2}};
                }}));

struct BadAttach {
  const char* names;
  void (*spoil)(AttachTrainer&);
};

class BadTrainer : public ::testing::TestWithParam<BadAttach> {};

TEST_P(BadTrainer, IsRefusedByTheNameOfTheField) {
  Harness h;
  AttachTrainer attach;
  attach.process = 1;
  attach.mesh.dp = 2;
  GetParam().spoil(attach);
  const uint64_t before = h.state.Hash();
  const auto reply = h.Do<AttachReply>(attach);
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reply.status.message(), HasSubstr(GetParam().names));
  EXPECT_EQ(h.state.Hash(), before);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadTrainer,
    ::testing::Values(BadAttach{"process: 0", [](AttachTrainer& a) { a.process = 0; }},
                      BadAttach{"trainer: 257 bytes, at most 256",
                                [](AttachTrainer& a) { a.trainer.assign(257, 'x'); }},
                      BadAttach{"mesh.dp: 0", [](AttachTrainer& a) { a.mesh.dp = 0; }},
                      BadAttach{"dp_rank: 2, less than 2", [](AttachTrainer& a) { a.dp_rank = 2; }},
                      BadAttach{"peer: 1, less than 1", [](AttachTrainer& a) { a.peer = 1; }}));

TEST(BadInput, AMessageFromNoShardIsRefused) {
  Harness h;
  const uint64_t before = h.state.Hash();
  EXPECT_THAT(h.Run(FromShard{ShardId(1), 1, codec::Reserved{}}).message(),
              HasSubstr("shard: 1, less than 1"));
  EXPECT_THAT(h.Run(ShardAcknowledged{ShardId(9), 1}).message(), HasSubstr("shard: 9"));
  EXPECT_EQ(h.state.Hash(), before);
}

TEST(BadInput, ARepeatedOrEarlyMessageIsAcknowledgedAndNotApplied) {
  Harness h;
  const uint64_t before = h.state.Hash();
  Effects effects;
  h.state.Apply(FromShard{ShardId(0), 2, codec::Reserved{}}, 0, &effects);
  EXPECT_EQ(h.state.Hash(), before);
  ASSERT_EQ(effects.acknowledge_shards.size(), 1);
  EXPECT_EQ(effects.acknowledge_shards[0].second, 0);
}

TEST(BadInput, GroupsAreNotAskedForTwice) {
  Harness h;
  h.PutTrainSource();
  h.Attach();
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(3)}).ok());
  const uint64_t before = h.state.Hash();
  const auto ask = [&h](uint32_t groups, uint32_t revision = 1) {
    return h.Run(RequestGroups{StepId(1), Revision(revision), {{ShardId(0), groups, 0}}});
  };
  EXPECT_THAT(ask(4).message(), HasSubstr("parts: 4 in all, step 1 lacks 3"));
  EXPECT_EQ(ask(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ask(1, 2).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.state.Hash(), before);
}

TEST(BadInput, AnAbortNeedsAnOpenStepAndAShortReason) {
  Harness h;
  h.PutTrainSource();
  h.Attach();
  const uint64_t before = h.state.Hash();
  EXPECT_THAT(h.Run(AbortStep{h.generation, StepId(1), ""}).message(), HasSubstr("is not open"));
  EXPECT_THAT(h.Run(AbortStep{h.generation, StepId(1), std::string(1025, 'x')}).message(),
              HasSubstr("reason: 1025 bytes, at most 1024"));
  EXPECT_EQ(h.state.Hash(), before);
}

// What Propose would refuse may still be in the log, if the state moved on between the two.
TEST(BadInput, ApplyRefusesWhatProposeWouldRefuse) {
  Harness h;
  h.PutTrainSource();
  h.Attach();
  const uint64_t before = h.state.Hash();
  Effects effects;
  h.state.Apply(CommitStep{h.generation, StepId(1), Revision(1)}, 5, &effects);
  ASSERT_EQ(effects.replies.size(), 1);
  EXPECT_EQ(effects.replies[0].tag, 5);
  EXPECT_FALSE(std::get<CommitReply>(effects.replies[0].reply).status.ok());
  EXPECT_EQ(h.state.Hash(), before);
}

}  // namespace
}  // namespace forebay::ledger
