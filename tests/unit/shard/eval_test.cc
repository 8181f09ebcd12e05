#include <map>

#include "shard/eval_run.h"
#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

constexpr SourceId kHeldOut{1};

struct EvalHarness : Harness {
  explicit EvalHarness(uint32_t tasks, uint32_t max_failures = 3) {
    Start();
    settings.name = "held-out";
    settings.purpose = codec::Purpose::kEval;
    settings.max_failures = max_failures;
    PutSource(kHeldOut);
    Add(kHeldOut, 5000, tasks);
  }
  CountReply StartRun(uint64_t run, uint32_t attempts, double share = 1, uint32_t version = 0) {
    return Ask<CountReply>(StartEval{EvalRunId(run), kHeldOut, {0, version}, attempts, share});
  }
  AssignReply AcquireAt(uint32_t max, uint32_t version, bool any = false) {
    Assign assign;
    assign.session = kActor;
    assign.request_id = ++request_id;
    assign.max = max;
    assign.version = {0, version};
    assign.loads_any_version = any;
    return Ask<AssignReply>(assign);
  }
};

TEST(Eval, EachTaskIsTriedSoManyTimesAndTheResultStays) {
  EvalHarness h(3);
  EXPECT_EQ(h.StartRun(9, 2).count, 1u);
  EXPECT_EQ(h.StartRun(9, 2).count, 0u);
  const auto a = h.AcquireAt(6, 0).assignments;
  ASSERT_EQ(a.size(), 6u);
  for (const Assignment& assignment : a) {
    EXPECT_EQ(assignment.eval_run, EvalRunId(9));
    EXPECT_EQ(assignment.task.source(), kHeldOut);
  }
  // Tasks: both pass, one passes, none passes.
  const double rewards[] = {1, 1, 1, 0, 0, 0};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_FALSE(h.state.Eval(EvalRunId(9))->done);
    EXPECT_EQ(h.Push(a[i], rewards[i]), PushResult::kAccepted);
    EXPECT_EQ(h.effects.dead_payloads.size(), 1u);
  }
  const EvalView view = *h.state.Eval(EvalRunId(9));
  EXPECT_TRUE(view.done);
  EXPECT_EQ(view.tasks, 3u);
  EXPECT_EQ(view.tasks_done, 3u);
  EXPECT_EQ(view.rollouts, 6u);
  EXPECT_DOUBLE_EQ(view.mean_sum, 1.5);
  EXPECT_DOUBLE_EQ(view.mean_square_sum, 1.25);
  EXPECT_EQ(view.pass_sums, (std::vector<double>{1.5, 2}));
  EXPECT_EQ(view.tokens_sum, 120u);
  EXPECT_EQ(h.View(kHeldOut).counters->evaluated, 6u);
  EXPECT_EQ(h.Push(a[0], 1), PushResult::kDuplicate);
  h.CheckState();
}

TEST(Eval, WhatWasSavedOfAnAttemptThatIsGivenUpIsFreed) {
  EvalHarness h(1, 1);
  h.StartRun(1, 1);
  RolloutMeta saved = h.Meta(h.AcquireAt(1, 0).assignments.at(0), 0);
  saved.partial = true;
  ASSERT_EQ(h.Push(saved), PushResult::kAccepted);
  const Assignment again = h.AcquireAt(1, 0).assignments.at(0);
  ASSERT_EQ(again.partial, saved.payload);
  h.Apply(Fail{h.kActor, {{again.attempt, again.token}}, "it broke"});
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{saved.payload});
  EXPECT_EQ(h.state.Eval(EvalRunId(1))->failed, 1u);
  h.CheckState();
}

TEST(Eval, OnlyActorsWithTheVersionGetIt) {
  EvalHarness h(2);
  h.FromLedger(h.Versions(3));
  h.settings.purpose = codec::Purpose::kTrain;
  h.settings.name = "math";
  h.settings.paused = true;
  h.PutSource();
  h.StartRun(1, 1, 1, 2);
  const AssignReply reply = h.AcquireAt(2, 3);
  EXPECT_TRUE(reply.assignments.empty());
  EXPECT_EQ(h.AcquireAt(1, 2).assignments.size(), 1u);
  const auto any = h.AcquireAt(1, 3, true).assignments;
  ASSERT_EQ(any.size(), 1u);
  EXPECT_EQ(any[0].version.number, 2u);
}

TEST(Eval, ResultsOfAnotherVersionAreRefused) {
  EvalHarness h(2);
  h.FromLedger(h.Versions(3));
  h.StartRun(1, 1, 1, 2);
  const auto a = h.AcquireAt(1, 2).assignments;
  RolloutMeta meta = h.Meta(a[0], 1);
  meta.first.versions = {{0, {0, 3}, 10}};
  EXPECT_EQ(h.Push(meta), PushResult::kStale);
}

TEST(Eval, TakesItsShareOfTheSlots) {
  EvalHarness h(1000);
  h.StartRun(1, 1, 0.25);
  int evals = 0;
  for (int i = 0; i < 10; ++i) {
    for (const Assignment& a : h.AcquireAt(6, 0).assignments) evals += a.eval_run.value == 1;
  }
  EXPECT_EQ(evals, 15);
}

TEST(Eval, FillsSlotsThatTrainingLeaves) {
  EvalHarness h(1000);
  h.settings.purpose = codec::Purpose::kTrain;
  h.settings.name = "math";
  h.settings.paused = true;
  h.PutSource();
  h.StartRun(1, 1, 0.25);
  EXPECT_EQ(h.AcquireAt(40, 0).assignments.size(), 40u);
}

TEST(Eval, LostAttemptsAreRetriedAndGivenUpInTheEnd) {
  EvalHarness h(1, 2);
  h.StartRun(1, 2);
  auto a = h.AcquireAt(2, 0).assignments;
  h.Push(a[1], 1);
  h.Apply(Expire{{{a[0].attempt, 1}}});
  auto again = h.AcquireAt(1, 0).assignments;
  ASSERT_EQ(again[0].attempt, a[0].attempt);
  EXPECT_FALSE(h.state.Eval(EvalRunId(1))->done);
  h.Apply(Fail{Harness::kActor, {{again[0].attempt, again[0].token}}, ""});
  const EvalView view = *h.state.Eval(EvalRunId(1));
  EXPECT_TRUE(view.done);
  EXPECT_EQ(view.failed, 1u);
  EXPECT_DOUBLE_EQ(view.mean_sum, 1);
  EXPECT_EQ(h.View(kHeldOut).quarantined, 0u);
  h.CheckState();
}

TEST(Eval, QuarantinedTasksAreLeftOut) {
  EvalHarness h(3);
  h.Apply(SetQuarantine{kHeldOut, true, {1000 + 5001}, false});
  h.StartRun(1, 1);
  const auto a = h.AcquireAt(3, 0).assignments;
  int evals = 0;
  for (const Assignment& assignment : a) {
    if (assignment.eval_run.value != 1) continue;
    ++evals;
    h.Push(assignment, 1);
  }
  EXPECT_EQ(evals, 2);
  EXPECT_TRUE(h.state.Eval(EvalRunId(1))->done);
  EXPECT_EQ(h.state.Eval(EvalRunId(1))->tasks, 2u);
  h.CheckState();
}

TEST(Eval, ARunOfNoTasksIsDoneAtOnce) {
  EvalHarness h(0);
  h.StartRun(1, 1);
  EXPECT_TRUE(h.state.Eval(EvalRunId(1))->done);
}

TEST(Eval, BadRunsAreRefusedAndChangeNothing) {
  EvalHarness h(3);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.StartRun(0, 1).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(h.StartRun(1, 0).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(h.StartRun(1, 4097).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(h.StartRun(1, 1, 0).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(h.StartRun(1, 1, 1.5).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(h.StartRun(1, 1, 1, 5).status.code(), absl::StatusCode::kInvalidArgument);
  const CountReply train =
      h.Ask<CountReply>(StartEval{EvalRunId(1), Harness::kSource, {0, 0}, 1, 1});
  EXPECT_EQ(train.status.code(), absl::StatusCode::kInvalidArgument);
  const CountReply unknown = h.Ask<CountReply>(StartEval{EvalRunId(1), SourceId(8), {0, 0}, 1, 1});
  EXPECT_EQ(unknown.status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Eval, PassAtKIsTheUnbiasedEstimator) {
  EXPECT_DOUBLE_EQ(PassAt(4, 0, 2), 0);
  EXPECT_DOUBLE_EQ(PassAt(4, 2, 1), 0.5);
  EXPECT_DOUBLE_EQ(PassAt(4, 2, 2), 1 - 1.0 / 6);
  EXPECT_DOUBLE_EQ(PassAt(4, 3, 2), 1);
  EXPECT_DOUBLE_EQ(PassAt(4, 4, 4), 1);
}

TEST(Eval, RunsTakeTheirSharesInTurnAndLeaveTrainingItsPart) {
  EvalHarness h(50);
  for (uint64_t run = 1; run <= 4; ++run) h.StartRun(run, 1, 0.5);
  std::map<EvalRunId, uint32_t> got;
  for (int i = 0; i < 40; ++i) {
    for (const Assignment& a : h.AcquireAt(1, 0).assignments) ++got[a.eval_run];
  }
  EXPECT_EQ(got[EvalRunId(1)], 20u);
  EXPECT_EQ(got[EvalRunId()], 20u);
  EXPECT_EQ(got.size(), 2u);
}

}  // namespace
}  // namespace forebay::shard
