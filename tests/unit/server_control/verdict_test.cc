#include "server/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StepFacts WaitingStep(uint64_t waited_ms) {
  return {.step = 7,
          .state = "open",
          .waiting = "waiting for groups: 3 of 8 reserved",
          .waited_ms = waited_ms,
          .groups = 3,
          .groups_wanted = 8,
          .lacks_groups = true};
}

SourceFacts Source(uint64_t tasks, uint64_t quarantined) {
  SourceFacts source;
  source.name = "math";
  source.tasks = tasks;
  source.quarantined = quarantined;
  return source;
}

TEST(Verdict, AnIdleDaemonIsOk) {
  const auto judged = Judge(Observation(), VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kOk);
  EXPECT_THAT(judged.reasons, IsEmpty());
  EXPECT_THAT(judged.waits, IsEmpty());
}

TEST(Verdict, ADrainingDaemonIsUnavailable) {
  Observation seen;
  seen.draining = true;
  EXPECT_EQ(Judge(seen, VerdictLimits()).verdict, VerdictKind::kUnavailable);
}

TEST(Verdict, AnAbsentShardDegradesAndSaysWhatItMeansAndHowItComesBack) {
  Observation seen;
  seen.shards = 4;
  seen.absent = {{.shard = ShardId(1), .why = "shard-1 is absent, for it is damaged"}};
  auto judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kDegraded);
  EXPECT_THAT(judged.reasons,
              ElementsAre(AllOf(HasSubstr("shard-1 is absent, for it is damaged"),
                                HasSubstr("will soon be planned without it"),
                                HasSubstr("about 1 in 4"), HasSubstr("storage.directory"))));
  seen.absent[0].planned_without = true;
  seen.absent[0].planned_rollouts = 12;
  seen.cluster.node = 1;
  seen.cluster.tolerated = -1;
  judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kDegraded);
  EXPECT_THAT(judged.reasons,
              ElementsAre(AllOf(HasSubstr("are planned without it"), HasSubstr("12 rollouts of it"),
                                HasSubstr("buffer-ctl shards"))));
}

TEST(Verdict, PushesThatWaitForMemoryDegradeAndNameTheEntry) {
  Observation seen;
  seen.payloads.budget = {.bytes_max = 4096, .used_bytes = 4000, .waiters = 3};
  const auto judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kDegraded);
  EXPECT_THAT(judged.reasons, ElementsAre(HasSubstr("memory.payload_bytes_max")));
  EXPECT_THAT(judged.waits, ElementsAre("3 pushes: memory"));
}

TEST(Verdict, AStepThatWaitsIsShownAtOnceAndDegradesWhenItLasts) {
  Observation seen;
  seen.actors_live = 1;
  seen.steps.push_back(WaitingStep(29'999));
  auto judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kOk);
  EXPECT_THAT(judged.waits, ElementsAre(HasSubstr("OpenStep 7: waiting for groups: 3 of 8")));
  seen.steps[0].waited_ms = 30'000;
  judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kDegraded);
  EXPECT_THAT(judged.reasons, ElementsAre(HasSubstr("step 7 has waited 30 s")));
}

TEST(Verdict, AStepThatMemoryCannotHoldIsUnavailableOncePushesWait) {
  Observation seen;
  seen.actors_live = 1;
  seen.steps.push_back(WaitingStep(100));
  seen.steps[0].too_large = true;
  EXPECT_EQ(Judge(seen, VerdictLimits()).verdict, VerdictKind::kOk);
  seen.payloads.budget = {.bytes_max = 4096, .used_bytes = 4000, .waiters = 1};
  const auto judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kUnavailable);
  EXPECT_THAT(judged.reasons, Contains(HasSubstr("step 7 has waited")));
}

TEST(Verdict, ActorsHeldBackByAVersionAreToldWhichOne) {
  Observation seen;
  seen.acquires_waiting = 4;
  seen.idle_reason = "admission";
  EXPECT_THAT(Judge(seen, VerdictLimits()).waits, ElementsAre("4 actors in Acquire: admission"));
  seen.unpublished = "published version 2, step 6 trains on version 5: publish it to go on";
  EXPECT_THAT(Judge(seen, VerdictLimits()).waits,
              ElementsAre("4 actors in Acquire: admission (max_lag: published version 2, step 6 "
                          "trains on version 5: publish it to go on)"));
}

TEST(Verdict, WorkWithoutActorsDegradesOnlyWhileAStepWantsGroups) {
  Observation seen;
  seen.sources.push_back(Source(10, 0));
  EXPECT_EQ(Judge(seen, VerdictLimits()).verdict, VerdictKind::kOk);
  seen.steps.push_back(WaitingStep(100));
  EXPECT_THAT(Judge(seen, VerdictLimits()).reasons, ElementsAre(HasSubstr("no actor")));
  seen.acquires_waiting = 1;
  EXPECT_THAT(Judge(seen, VerdictLimits()).reasons, IsEmpty());
  seen.acquires_waiting = 0;
  seen.sources[0].paused = true;
  EXPECT_THAT(Judge(seen, VerdictLimits()).reasons, IsEmpty());
}

TEST(Verdict, QuarantinedTasksAndEnginesBehindAreNamed) {
  Observation seen;
  seen.sources.push_back(Source(10, 2));
  seen.engines.push_back({.name = "vllm-0", .behind = 1});
  seen.engines.push_back({.name = "vllm-1", .behind = 5});
  EXPECT_THAT(Judge(seen, VerdictLimits()).reasons,
              ElementsAre("2 of 10 tasks of source 'math' are quarantined",
                          "1 engine is behind; 'vllm-1' by 5 published versions"));
}

TEST(SourceReason, SaysWhyNothingIsHandedOut) {
  SourceFacts source = Source(10, 0);
  source.attempts_per_task = 4;
  source.outstanding_max = 100;
  EXPECT_EQ(ReasonOf(source, ""), "");
  EXPECT_EQ(ReasonOf(source, "memory"), "memory");
  source.outstanding = 97;
  EXPECT_EQ(ReasonOf(source, ""), "admission");
  source.quarantined = 10;
  EXPECT_EQ(ReasonOf(source, ""), "no_tasks");
  source.paused = true;
  EXPECT_EQ(ReasonOf(source, "memory"), "paused");
}

TEST(Verdict, AFullLogDegradesAndNamesTheEntry) {
  Observation seen;
  seen.logs = {{"shard-0", {.bytes = 10, .bytes_max = 64 << 20}},
               {"ledger", {.bytes = 65 << 20, .bytes_max = 64 << 20}}};
  seen.pushes_held = 7;
  const Judgement judgement = Judge(seen, {});
  EXPECT_EQ(judgement.verdict, VerdictKind::kDegraded);
  EXPECT_THAT(judgement.reasons,
              ElementsAre("the log of ledger is full: 65.0 MiB wait for the disk, at most "
                          "64.0 MiB (storage.log_pending_bytes_max)"));
  EXPECT_THAT(judgement.waits, ElementsAre("7 pushes: log"));
}

TEST(Verdict, NamesWhatIsWrongWithTheStore) {
  Observation seen;
  seen.storage.durable = true;
  EXPECT_EQ(Judge(seen, VerdictLimits()).verdict, VerdictKind::kOk);
  seen.storage.trouble = {.kind = "full",
                          .what = "write: ENOSPC, No space left on device",
                          .path = "/data/segments/3.seg",
                          .waiting_bytes = 3 << 20};
  seen.storage.trouble_ms = 12'345;
  const auto judged = Judge(seen, VerdictLimits());
  EXPECT_EQ(judged.verdict, VerdictKind::kDegraded);
  ASSERT_EQ(judged.reasons.size(), 1u);
  EXPECT_EQ(judged.reasons[0],
            "the store of rollouts is full since 12 s: write: ENOSPC, No space left on device "
            "(/data/segments/3.seg); 3.0 MiB wait to be written");
}

}  // namespace
}  // namespace forebay::server
