#include "ledger/primary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/limits.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class Primaries : public ::testing::Test {
 protected:
  Primaries() {
    h.PutTrainSource();
    h.Attach();
  }
  absl::Status Open(uint64_t step, const StepSpec& spec) {
    return h.Run(OpenStep{h.generation, StepId(step), spec});
  }
  std::string Waiting(uint64_t step) { return h.primary.Waiting(StepId(step), h.now); }
  size_t Requests() {
    return std::count_if(h.log.begin(), h.log.end(), [](const Command& command) {
      return std::holds_alternative<RequestGroups>(command);
    });
  }
  codec::ReadySummary Summary(uint8_t shard, uint32_t ready, uint32_t waited_for = 0) {
    codec::ReadySummary summary;
    summary.shard = ShardId(shard);
    summary.sources = {{SourceId(0), ready, ready * 400ull, 1, 7, waited_for}};
    return summary;
  }
  Harness h{{.shards = 3}};
};

TEST_F(Primaries, RefusalsNeedNoLog) {
  Output output;
  h.primary.Propose(0, 3, CommitStep{h.generation, StepId(4), Revision(1)}, &output);
  EXPECT_TRUE(output.commands.empty());
  ASSERT_EQ(output.replies.size(), 1);
  EXPECT_FALSE(std::get<CommitReply>(output.replies[0].reply).status.ok());
  output.Clear();
  h.primary.Propose(0, 0, CommitStep{h.generation, StepId(4), Revision(1)}, &output);
  EXPECT_TRUE(output.replies.empty()) << "nobody waits";
}

TEST_F(Primaries, AsksEachShardForItsShareOfWhatIsLacking) {
  ASSERT_TRUE(Open(1, h.Spec(6)).ok());
  for (int i = 0; i < 2; ++i) h.shards[0].AddReady({});
  for (int i = 0; i < 10; ++i) h.shards[2].AddReady({});
  h.paused = true;
  Output output;
  Primary fresh(h.state);
  fresh.SetSummary(0, h.shards[0].Summary(), &output);
  ASSERT_EQ(output.commands.size(), 1);
  const auto& first = std::get<RequestGroups>(output.commands[0].second);
  ASSERT_EQ(first.parts.size(), 1);
  EXPECT_EQ(first.parts[0].groups, 2);
  // One request at a time: the second summary waits until the first is applied.
  fresh.SetSummary(0, h.shards[2].Summary(), &output);
  ASSERT_EQ(output.commands.size(), 1);
  const Command asked = output.commands[0].second;
  ASSERT_TRUE(h.Run(asked).ok());
  Effects effects;
  effects.to_shards.resize(1);  // somebody was asked
  output.Clear();
  fresh.Applied(0, asked, effects, &output);
  ASSERT_EQ(output.commands.size(), 1);
  const auto& second = std::get<RequestGroups>(output.commands[0].second);
  ASSERT_EQ(second.parts.size(), 1);
  EXPECT_EQ(second.parts[0].shard, ShardId(2));
  EXPECT_EQ(second.parts[0].groups, 4);
}

TEST_F(Primaries, PartsAreProportionalAndAddUp) {
  ASSERT_TRUE(Open(1, h.Spec(7)).ok());
  Output output;
  Primary fresh(h.state);
  fresh.SetSummary(0, Summary(0, 30), &output);
  output.Clear();
  // A refused request is taken back, so that what is ready can be asked for again.
  fresh.Applied(0, RequestGroups{StepId(1), Revision(1), {{ShardId(0), 7, 0}}}, Effects{}, &output);
  ASSERT_EQ(output.commands.size(), 1);
  output.Clear();
  fresh.SetSummary(0, Summary(1, 30), &output);
  fresh.SetSummary(0, Summary(2, 10), &output);
  fresh.Applied(0, RequestGroups{StepId(1), Revision(1), {{ShardId(0), 7, 0}}}, Effects{}, &output);
  ASSERT_EQ(output.commands.size(), 1);
  const auto& request = std::get<RequestGroups>(output.commands[0].second);
  ASSERT_EQ(request.parts.size(), 3);
  EXPECT_EQ(request.parts[0].groups, 3);
  EXPECT_EQ(request.parts[1].groups, 3);
  EXPECT_EQ(request.parts[2].groups, 1);
}

TEST_F(Primaries, AsksNoShardTwiceForWhatOneSummaryShows) {
  ASSERT_TRUE(Open(1, h.Spec(10)).ok());
  h.shards[0].AddReady({});
  h.shards[0].refuse_versions_below = 5;  // it does not give what it shows
  h.Summarize();
  EXPECT_EQ(Requests(), 1);
  h.now += 1000;
  Output output;
  h.primary.Tick(h.now, &output);
  EXPECT_TRUE(output.commands.empty());
  h.Summarize();
  EXPECT_EQ(Requests(), 2) << "a new summary is a new chance";
}

TEST_F(Primaries, AsksNoMoreOfAShardThatGaveNothing) {
  StepSpec spec = h.Spec(0);
  spec.tokens = 5;
  ASSERT_TRUE(Open(1, spec).ok());
  h.shards[0].AddReady({});
  h.shards[0].refuse_versions_below = 5;
  h.Summarize();
  EXPECT_EQ(Requests(), 1) << "five tokens at a time, it would be asked eighty times";
  h.shards[0].refuse_versions_below = 0;
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
}

TEST_F(Primaries, TheOldestStepComesFirst) {
  ASSERT_TRUE(Open(1, h.Spec(2)).ok());
  ASSERT_TRUE(Open(2, h.Spec(2)).ok());
  for (int i = 0; i < 3; ++i) h.shards[0].AddReady({});
  h.Summarize();
  EXPECT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.step(2).groups.size(), 1);
}

// A shard may give fewer than it was asked for; what it has left is then the older step's.
TEST_F(Primaries, AYoungerStepAsksNothingWhileAnOlderOneAwaitsAnswers) {
  ASSERT_TRUE(Open(1, h.Spec(2)).ok());
  ASSERT_TRUE(Open(2, h.Spec(2)).ok());
  for (int i = 0; i < 4; ++i) h.shards[0].AddReady({});
  h.paused = true;
  h.Summarize();
  ASSERT_EQ(h.step(1).requests.size(), 1);
  EXPECT_TRUE(h.step(2).requests.empty());
  h.paused = false;
  h.Deliver();
  EXPECT_EQ(h.step(2).state, StepState::kSealed);
}

TEST_F(Primaries, AStepWaitsForStaleAttemptsButNotForEver) {
  h.now = 5000;
  ASSERT_TRUE(Open(1, h.Spec(1)).ok());
  Output output;
  h.primary.SetSummary(h.now, Summary(0, 5, 3), &output);
  EXPECT_TRUE(output.commands.empty());
  EXPECT_THAT(Waiting(1), HasSubstr("waits for 3 stale attempts, at most 60 s more"));
  EXPECT_EQ(h.primary.NextTick(), 5000 + kLateWaitMs);
  h.now = 5000 + kLateWaitMs;
  h.primary.Tick(h.now, &output);
  EXPECT_EQ(output.commands.size(), 1);
}

TEST_F(Primaries, StaleAttemptsThatCameInAreNoReasonToWait) {
  ASSERT_TRUE(Open(1, h.Spec(1)).ok());
  Output output;
  h.primary.SetSummary(h.now, Summary(0, 5, 3), &output);
  h.primary.SetSummary(h.now, Summary(0, 5, 0), &output);
  EXPECT_EQ(output.commands.size(), 1);
  EXPECT_EQ(h.primary.NextTick(), Primary::kNever);
}

TEST_F(Primaries, SayWhyAStepWaits) {
  EXPECT_EQ(Waiting(1), "step 1 is not open");
  ASSERT_TRUE(Open(1, h.Spec(64)).ok());
  for (int i = 0; i < 12; ++i) h.shards[1].AddReady({});
  h.Summarize();
  codec::ReadySummary summary = Summary(0, 0);
  summary.sources[0].in_flight = 40;
  Output output;
  h.primary.SetSummary(h.now, summary, &output);
  h.primary.SetSummary(h.now, Summary(1, 0), &output);
  EXPECT_EQ(Waiting(1), "waiting for groups: 12 of 64 reserved, 0 ready, 47 attempts in flight");
  ASSERT_TRUE(Open(2, h.Spec(1)).ok());
  EXPECT_THAT(Waiting(2), HasSubstr("step 1 comes first"));
  h.paused = true;
  h.primary.SetSummary(h.now, Summary(2, 3), &output);
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), "by hand"}).ok());
  EXPECT_EQ(Waiting(1), "aborted: by hand");
}

TEST_F(Primaries, NameTheSourcesThatStandStillByReason) {
  for (const char* name : {"a", "b", "c", "d", "e"}) h.PutTrainSource(name);
  ASSERT_TRUE(Open(1, h.Spec(64)).ok());
  Output output;
  for (uint8_t shard = 0; shard < 3; ++shard) {
    codec::ReadySummary summary;
    summary.shard = ShardId(shard);
    for (uint16_t source = 0; source < 6; ++source) {
      summary.sources.push_back({.source = SourceId(source), .idle = codec::IdleReason::kNoActors});
    }
    // A shard that has none of the few tasks says nothing about the source.
    summary.sources[5].idle = shard == 1 ? codec::IdleReason::kMemory : codec::IdleReason::kNoTasks;
    summary.sources[4].idle = shard == 1 ? codec::IdleReason::kNone : codec::IdleReason::kNoTasks;
    h.primary.SetSummary(h.now, summary, &output);
  }
  EXPECT_THAT(Waiting(1), HasSubstr("in flight; memory: source 'e'; no_actors: sources 'math', "
                                    "'a', 'b' and 1 more"));
  StepSpec spec = h.Spec(64);
  spec.sources = {SourceId(5)};
  ASSERT_TRUE(h.Run(AbortStep{h.generation, StepId(1), ""}).ok());
  ASSERT_TRUE(Open(1, spec).ok());
  EXPECT_THAT(Waiting(1), EndsWith("in flight; memory: source 'e'"));
}

TEST_F(Primaries, SayThatASourceIsPaused) {
  ASSERT_TRUE(Open(1, h.Spec(4)).ok());
  codec::SourceSettings settings = h.state.sources()[0].settings;
  settings.paused = true;
  ASSERT_TRUE(h.Do<PutSourceReply>(PutSource{settings}).status.ok());
  EXPECT_THAT(Waiting(1), EndsWith("; paused: source 'math'"));
}

TEST_F(Primaries, SayWhichVersionHasToBePublished) {
  ASSERT_TRUE(h.OpenFilled(1, h.Spec(3)).ok());
  EXPECT_EQ(h.primary.Unpublished(), "");
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_EQ(h.primary.Unpublished(),
            "published version 0, step 2 trains on version 1: publish it to go on");
  ASSERT_TRUE(Open(2, h.Spec(3)).ok());
  Output output;
  codec::ReadySummary summary = Summary(0, 0);
  summary.sources[0].idle = codec::IdleReason::kAdmission;
  for (uint8_t shard = 0; shard < 3; ++shard) {
    summary.shard = ShardId(shard);
    h.primary.SetSummary(h.now, summary, &output);
  }
  EXPECT_THAT(Waiting(2), EndsWith("; admission: source 'math' (max_lag 1: published version 0, "
                                   "step 2 trains on version 1: publish it to go on)"));
}

TEST_F(Primaries, HoldBackWhatTheWaitingStepDoesNotTakeWhileMemoryIsShort) {
  h.PutTrainSource("code");
  h.primary.SetPayloadBytesMax(1'000);
  EXPECT_TRUE(h.primary.HeldBack(0).empty()) << "no step waits";
  StepSpec spec = h.Spec(8);
  spec.sources = {SourceId(1)};
  ASSERT_TRUE(Open(1, spec).ok());
  EXPECT_EQ(h.primary.HeldBack(499), std::vector{SourceId(0)});
  EXPECT_TRUE(h.primary.HeldBack(500).empty());
  h.primary.SetPayloadBytesMax(0);
  EXPECT_TRUE(h.primary.HeldBack(0).empty()) << "no limit is known";
}

TEST_F(Primaries, SayThatAStepIsTooLargeForTheMemory) {
  ASSERT_TRUE(Open(1, h.Spec(8)).ok());
  Output output;
  codec::ReadySummary summary = Summary(0, 0);
  summary.sources[0].group_bytes = 1 << 20;
  h.primary.SetSummary(h.now, summary, &output);
  h.primary.SetPayloadBytesMax(8 << 20);
  EXPECT_FALSE(h.primary.TooLarge(h.step(1)));
  h.primary.SetPayloadBytesMax(7 << 20);
  EXPECT_TRUE(h.primary.TooLarge(h.step(1)));
  EXPECT_THAT(Waiting(1), HasSubstr("; the step needs about 8.0 MiB of payload memory, "
                                    "memory.payload_bytes_max is 7.0 MiB: raise it, or open "
                                    "smaller steps"));
  // What is reserved is known better.
  h.shards[1].AddReady({});
  h.Summarize();
  uint64_t held = 0;
  for (const HeldRollout& rollout : h.step(1).rollouts) held += rollout.payload_bytes;
  ASSERT_GT(held, 0);
  EXPECT_EQ(h.primary.PayloadBytesOf(h.step(1)), held * 8);
  EXPECT_EQ(h.primary.GroupsLacking(h.step(1)), 7);
  EXPECT_FALSE(h.primary.TooLarge(h.step(1)));
}

TEST_F(Primaries, SayThatAShardHasNotAnswered) {
  ASSERT_TRUE(Open(1, h.Spec(4)).ok());
  h.shards[2].AddReady({});
  h.paused = true;
  h.Summarize();
  EXPECT_THAT(Waiting(1), HasSubstr("shard 2: asked, and has not answered"));
}

TEST(PrimaryOfManyShards, SaysInShortWhatMostOfThemWaitFor) {
  Harness h{{.shards = 64}};
  h.PutTrainSource();
  h.Attach();
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(64)}).ok());
  Output output;
  for (uint8_t i = 0; i < 64; ++i) {
    codec::ReadySummary summary;
    summary.shard = ShardId(i);
    summary.sources = {{.source = SourceId(0), .idle = codec::IdleReason::kNoTasks}};
    h.primary.SetSummary(h.now, summary, &output);
  }
  EXPECT_THAT(h.primary.Waiting(StepId(1), h.now), EndsWith("in flight; no_tasks: source 'math'"));
  for (FakeShard& shard : h.shards) shard.AddReady({});
  h.paused = true;
  h.Summarize();
  EXPECT_THAT(h.primary.Waiting(StepId(1), h.now),
              EndsWith("; shards 0, 1, 2 and 61 more: asked, and have not answered"));
}

TEST_F(Primaries, SayThatAdvantagesAreAwaited) {
  StepSpec spec = h.Spec(1);
  spec.custom_advantages = true;
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  EXPECT_EQ(Waiting(1), "waiting for the advantages of 4 rollouts");
}

TEST(PrimaryWithoutSources, SaysSo) {
  Harness h;
  h.Attach();
  ASSERT_TRUE(h.Run(OpenStep{h.generation, StepId(1), h.Spec(4)}).ok());
  EXPECT_THAT(h.primary.Waiting(StepId(1), 0), HasSubstr("there is no train source"));
}

TEST_F(Primaries, MeasureHowLongAStepWaited) {
  h.now = 1000;
  ASSERT_TRUE(Open(1, h.Spec(1)).ok());
  EXPECT_EQ(h.primary.WaitedMs(StepId(1), 1500), 500);
  h.now = 3000;
  h.shards[0].AddReady({});
  h.Summarize();
  ASSERT_EQ(h.step(1).state, StepState::kSealed);
  EXPECT_EQ(h.primary.WaitedMs(StepId(1), 9000), 2000);
  EXPECT_EQ(Waiting(1), "");
  ASSERT_TRUE(h.Commit(1).status.ok());
  EXPECT_EQ(h.primary.WaitedMs(StepId(1), 9000), 2000);
}

TEST_F(Primaries, ANewOneStartsTheClocksAfresh) {
  ASSERT_TRUE(Open(1, h.Spec(1)).ok());
  Primary fresh(h.state);
  Output output;
  fresh.Tick(7000, &output);
  EXPECT_EQ(fresh.WaitedMs(StepId(1), 7500), 500);
}

}  // namespace
}  // namespace forebay::ledger
