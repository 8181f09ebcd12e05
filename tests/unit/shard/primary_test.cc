#include "shard/primary.h"

#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

// A shard with its primary, whose commands commit at once.
struct PrimaryHarness : Harness {
  explicit PrimaryHarness(uint32_t tasks = 100, PrimaryOptions o = {}) : options(o) {
    settings.lease_min_ms = settings.lease_max_ms = 10'000;
    Start(tasks);
    primary = std::make_unique<Primary>(state, now, options);
  }

  void Drain(Output* output) {
    while (true) {
      for (TaggedReply& reply : output->replies) replies.push_back(std::move(reply));
      output->replies.clear();
      if (output->commands.empty()) return;
      auto commands = std::move(output->commands);
      output->Clear();
      for (auto& [tag, command] : commands) {
        kinds.push_back(command.index());
        Effects out;
        state.Apply(command, tag, &out);
        for (TaggedReply& reply : out.replies) replies.push_back(std::move(reply));
        primary->Applied(now, command, out, output);
      }
    }
  }
  void Propose(Command command, Tag tag = 500) {
    Output output;
    primary->Propose(now, tag, std::move(command), &output);
    Drain(&output);
  }
  void Commit(codec::ToShard message) {
    Propose(shard::FromLedger{++ledger_number, std::move(message)}, 0);
  }
  void AcquireAs(Tag tag, uint32_t max, uint32_t wait_ms, SessionId session = kActor) {
    Assign assign;
    assign.session = session;
    assign.request_id = ++request_id;
    assign.max = max;
    Output output;
    primary->Acquire(now, tag, assign, wait_ms, &output);
    Drain(&output);
  }
  void Tick() {
    Output output;
    primary->Tick(now, &output);
    Drain(&output);
  }
  void AdvanceTo(uint64_t until) {
    while (primary->NextTick() <= until) {
      now = std::max(now, primary->NextTick());
      Tick();
    }
    now = until;
  }
  // The answer of a tag, once; nullptr if there is none yet.
  std::unique_ptr<AssignReply> Answer(Tag tag) {
    for (auto it = replies.begin(); it != replies.end(); ++it) {
      if (it->tag != tag) continue;
      auto reply = std::make_unique<AssignReply>(std::get<AssignReply>(it->reply));
      replies.erase(it);
      return reply;
    }
    return nullptr;
  }
  std::vector<Assignment> Leases(uint32_t max, SessionId session = kActor) {
    AcquireAs(900, max, 0, session);
    return Answer(900)->assignments;
  }

  PrimaryOptions options;
  uint64_t now = 1'000'000;
  std::unique_ptr<Primary> primary;
  std::vector<TaggedReply> replies;
  std::vector<size_t> kinds;  // of the commands that were logged
};

TEST(Primary, AnswersAtOnceWhenThereIsSomething) {
  PrimaryHarness h;
  h.AcquireAs(1, 4, 1000);
  EXPECT_EQ(h.Answer(1)->assignments.size(), 4u);
}

TEST(Primary, WhatAnotherRunGaveOutIsALostLease) {
  PrimaryHarness h;
  h.primary->SetFirstToken(700);
  const std::vector<Assignment> leases = h.Leases(2);
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(leases[0].token, 700u);
  for (const uint32_t token : {1u, 699u, 701u}) {
    RolloutMeta meta = h.Meta(leases[0], 1);
    meta.lease.token = token;  // of the same attempt in another run
    EXPECT_EQ(h.Push(meta), PushResult::kLeaseLost) << token;
  }
  EXPECT_EQ(h.Push(leases[0], 1), PushResult::kAccepted);
  // The next hand-out of an attempt counts on.
  h.Propose(Fail{Harness::kActor, {{leases[1].attempt, 700}}, "crashed"});
  bool found = false;
  for (const Assignment& again : h.Leases(8)) {
    if (again.attempt != leases[1].attempt) continue;
    found = true;
    EXPECT_EQ(again.token, 701u);
  }
  EXPECT_TRUE(found);
}

TEST(Primary, ARepeatedRequestIsAnsweredWithoutTheLog) {
  PrimaryHarness h;
  h.AcquireAs(1, 4, 1000);
  const auto first = h.Answer(1);
  h.kinds.clear();
  --h.request_id;
  h.AcquireAs(2, 4, 1000);
  const auto second = h.Answer(2);
  ASSERT_EQ(second->assignments.size(), 4u);
  EXPECT_EQ(second->assignments[3].attempt, first->assignments[3].attempt);
  EXPECT_TRUE(h.kinds.empty());
}

TEST(Primary, BadRequestsForAssignmentsAreRefusedByField) {
  PrimaryHarness h;
  const uint64_t hash = h.state.Hash();
  const auto refused = [&](Assign assign, std::string_view field) {
    Output output;
    h.primary->Acquire(h.now, 1, assign, 0, &output);
    EXPECT_TRUE(output.commands.empty());
    const absl::Status status = std::get<AssignReply>(output.replies.at(0).reply).status;
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(std::string(status.message()).substr(0, field.size()), field);
  };
  Assign assign;
  assign.session = SessionId(77);
  assign.request_id = 1;
  assign.max = 1;
  refused(assign, "session");
  assign.session = Harness::kActor;
  assign.max = 0;
  refused(assign, "max");
  assign.max = 5000;
  refused(assign, "max");
  assign.max = 1;
  assign.request_id = 0;
  refused(assign, "request_id");
  assign.request_id = 1;
  assign.sources = {SourceId(9)};
  refused(assign, "sources");
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Primary, BadCommandsAreRefusedWithoutTheLog) {
  PrimaryHarness h;
  h.kinds.clear();
  h.Propose(OpenSession{SessionId(0), "", "", "", ""});
  h.Propose(OpenSession{SessionId(5), std::string(300, 'x'), "", "", ""});
  h.Propose(Release{SessionId(99), {}});
  h.Propose(Fail{SessionId(99), {}, ""});
  h.Propose(Fail{Harness::kActor, {}, std::string(2000, 'x')});
  h.Propose(SetQuarantine{SourceId(9), true, {}, false});
  h.Propose(StartEval{EvalRunId(1), Harness::kSource, {}, 1, 1});
  h.Propose(SetRewards{{{AttemptId(1), 0, 0}}});
  EXPECT_TRUE(h.kinds.empty());
  ASSERT_EQ(h.replies.size(), 8u);
  for (size_t i = 0; i < 7; ++i)
    EXPECT_FALSE(std::get<CountReply>(h.replies[i].reply).status.ok()) << i;
  EXPECT_EQ(std::get<SetRewardsReply>(h.replies[7].reply).results[0], PushResult::kInvalid);
}

TEST(Primary, AWaitEndsWithTheReason) {
  PrimaryHarness h(0);
  h.AcquireAs(1, 4, 1000);
  EXPECT_EQ(h.Answer(1), nullptr);
  EXPECT_EQ(h.primary->waiters(), 1u);
  h.AdvanceTo(h.now + 999);
  EXPECT_EQ(h.Answer(1), nullptr);
  h.AdvanceTo(h.now + 20);
  const auto answer = h.Answer(1);
  ASSERT_NE(answer, nullptr);
  EXPECT_STREQ(answer->reason, "no_tasks");
  EXPECT_EQ(h.primary->NextTick(), UINT64_MAX);
}

TEST(Primary, AWaitOfZeroIsAnsweredAtOnce) {
  PrimaryHarness h(0);
  h.AcquireAs(1, 4, 0);
  EXPECT_STREQ(h.Answer(1)->reason, "no_tasks");
  EXPECT_STREQ(h.primary->IdleReason(), "no_tasks");
}

TEST(Primary, WakesAsManyAsCanGetSomethingInTurn) {
  PrimaryHarness h(0);
  for (uint64_t i = 1; i <= 10; ++i) {
    h.Propose(OpenSession{SessionId(100 + i), "", "", "", ""});
    h.AcquireAs(i, 4, 10'000, SessionId(100 + i));
  }
  h.Commit(h.Versions(0, 6));  // two groups of 4 for a lag of 1
  h.kinds.clear();
  h.Propose(AddTasks{Harness::kSource, {{1, 1, PayloadId(1), 1}, {2, 2, PayloadId(2), 1}}});
  EXPECT_NE(h.Answer(1), nullptr);
  EXPECT_NE(h.Answer(2), nullptr);
  EXPECT_NE(h.Answer(3), nullptr);
  EXPECT_EQ(h.Answer(4), nullptr);
  EXPECT_EQ(h.kinds.size(), 4u);  // the tasks, and one Assign for each
  EXPECT_EQ(h.primary->waiters(), 7u);
}

TEST(Primary, ANewRequestOfASessionEndsTheOldOne) {
  PrimaryHarness h(0);
  h.AcquireAs(1, 4, 10'000);
  h.AcquireAs(2, 4, 10'000);
  EXPECT_STREQ(h.Answer(1)->reason, "superseded");
  EXPECT_EQ(h.primary->waiters(), 1u);
  EXPECT_TRUE(h.primary->CancelWait(2));
  EXPECT_FALSE(h.primary->CancelWait(2));
  EXPECT_EQ(h.primary->waiters(), 0u);
}

TEST(Primary, ARequestRepeatedWhileItsAssignIsLoggedGetsTheSame) {
  PrimaryHarness h(1);
  Assign assign;
  assign.session = Harness::kActor;
  assign.request_id = 1;
  assign.max = 4;
  Output output;
  EXPECT_EQ(h.primary->NewestRequest(Harness::kActor), 0u);
  h.primary->Acquire(h.now, 1, assign, 0, &output);
  EXPECT_EQ(h.primary->NewestRequest(Harness::kActor), 1u);
  h.primary->Acquire(h.now, 2, assign, 0, &output);
  h.Drain(&output);
  const auto first = h.Answer(1);
  const auto again = h.Answer(2);
  ASSERT_EQ(first->assignments.size(), 4u);
  ASSERT_EQ(again->assignments.size(), 4u);
  EXPECT_EQ(again->assignments[3].attempt, first->assignments[3].attempt);
  EXPECT_EQ(h.primary->NewestRequest(Harness::kActor), 1u);
}

TEST(Primary, ALoggedAssignThatGotNothingIsForgotten) {
  PrimaryHarness h(1);
  Assign assign;
  assign.session = Harness::kActor;
  assign.request_id = 1;
  assign.max = 4;
  Output output;
  h.primary->Acquire(h.now, 1, assign, 0, &output);
  // Before it is applied the task goes.
  h.Apply(SetQuarantine{Harness::kSource, true, {1000}, false});
  h.Drain(&output);
  EXPECT_TRUE(h.Answer(1)->assignments.empty());
  EXPECT_EQ(h.primary->NewestRequest(Harness::kActor), 0u);
}

TEST(Primary, WaitersAreBounded) {
  PrimaryOptions options;
  options.waiters_max = 1;
  PrimaryHarness h(0, options);
  h.Propose(OpenSession{SessionId(2), "", "", "", ""});
  h.AcquireAs(1, 1, 1000);
  h.AcquireAs(2, 1, 1000, SessionId(2));
  EXPECT_EQ(h.Answer(2)->status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(Primary, ALeaseExpiresUnlessItIsRenewed) {
  PrimaryHarness h;
  const auto a = h.Leases(2);
  h.AdvanceTo(h.now + 9'000);
  const std::vector<LeaseRef> kept = {{a[0].attempt, a[0].token}};
  const std::vector<uint32_t> generated = {321};
  const RenewReply reply = h.primary->Renew(h.now, Harness::kActor, kept, generated);
  EXPECT_TRUE(reply.actions.empty());
  EXPECT_EQ(reply.lease_ms, 10'000u);
  EXPECT_EQ(h.primary->Clock(h.now, a[0].attempt).generated_tokens, 321u);
  EXPECT_EQ(h.primary->Clock(h.now, a[0].attempt).age_ms, 9'000u);
  h.AdvanceTo(h.now + 2'000);
  EXPECT_TRUE(h.state.LeaseHeld({a[0].attempt, 1}));
  EXPECT_FALSE(h.state.LeaseHeld({a[1].attempt, 1}));
  h.AdvanceTo(h.now + 9'000);
  EXPECT_FALSE(h.state.LeaseHeld({a[0].attempt, 1}));
  EXPECT_EQ(h.Counters().expired, 2u);
}

TEST(Primary, APushedAttemptDoesNotExpire) {
  PrimaryHarness h;
  const auto a = h.Leases(1);
  h.Propose(PutRollouts{Harness::kActor, {h.Meta(a[0], 1)}});
  EXPECT_EQ(h.primary->NextTick(), UINT64_MAX);
  h.AdvanceTo(h.now + 100'000);
  EXPECT_EQ(h.Counters().expired, 0u);
}

TEST(Primary, ANewPrimaryStartsEveryClockAfresh) {
  PrimaryHarness h;
  const auto a = h.Leases(1);
  h.AdvanceTo(h.now + 9'000);
  h.primary = std::make_unique<Primary>(h.state, h.now, h.options);
  h.AdvanceTo(h.now + 9'000);
  EXPECT_TRUE(h.state.LeaseHeld({a[0].attempt, 1}));
  h.AdvanceTo(h.now + 2'000);
  EXPECT_FALSE(h.state.LeaseHeld({a[0].attempt, 1}));
}

TEST(Primary, RenewalsSayWhyToStop) {
  PrimaryHarness h;
  h.Propose(OpenSession{SessionId(2), "", "", "", ""});
  h.settings.complete_at = 2;
  h.settings.max_failures = 1;
  h.PutSource();
  const auto a = h.Leases(9);
  for (size_t i = 0; i < 2; ++i)
    h.Propose(PutRollouts{Harness::kActor, {h.Meta(a[i], static_cast<double>(i))}});
  h.Propose(Release{Harness::kActor, {{a[8].attempt, 1}}});
  h.Propose(SetQuarantine{Harness::kSource, true, {1000 + a[4].task.index()}, false});
  const std::vector<LeaseRef> leases = {
      {a[2].attempt, 1}, {a[5].attempt, 1}, {a[8].attempt, 1}, {AttemptId(5), 1}};
  const RenewReply reply = h.primary->Renew(h.now, Harness::kActor, leases, {});
  ASSERT_EQ(reply.actions.size(), 4u);
  for (LeaseAction action : reply.actions) EXPECT_EQ(action, LeaseAction::kAbandon);
  EXPECT_STREQ(reply.reasons[0], "group_done");
  EXPECT_STREQ(reply.reasons[1], "task_removed");
  EXPECT_STREQ(reply.reasons[2], "lease_lost");
  EXPECT_STREQ(reply.reasons[3], "lease_lost");
}

TEST(Primary, StaleWorkIsCutShort) {
  PrimaryHarness h;
  const auto a = h.Leases(1);
  const std::vector<LeaseRef> lease = {{a[0].attempt, 1}};
  h.Commit(h.Versions(1));
  EXPECT_TRUE(h.primary->Renew(h.now, Harness::kActor, lease, {}).actions.empty());
  h.Commit(h.Versions(2));
  EXPECT_STREQ(h.primary->Renew(h.now, Harness::kActor, lease, {}).reasons.at(0), "too_stale");
  h.branch = 1;
  h.Commit(h.Versions(0));
  EXPECT_STREQ(h.primary->Renew(h.now, Harness::kActor, lease, {}).reasons.at(0), "rewound");
}

TEST(Primary, DrainingAsksForPartialsAndHandsOutNothing) {
  PrimaryHarness h;
  const auto a = h.Leases(1);
  h.primary->SetDraining(true);
  const std::vector<LeaseRef> lease = {{a[0].attempt, 1}};
  const RenewReply reply = h.primary->Renew(h.now, Harness::kActor, lease, {});
  EXPECT_EQ(reply.actions.at(0), LeaseAction::kSavePartial);
  EXPECT_STREQ(reply.reasons.at(0), "draining");
  h.AcquireAs(1, 1, 1000);
  EXPECT_STREQ(h.Answer(1)->reason, "draining");
}

TEST(Primary, AGroupsDeadlineRunsFromItsFirstAssignment) {
  PrimaryHarness h;
  h.settings.complete_deadline_ms = 5'000;
  h.settings.complete_minimum = 2;
  h.PutSource();
  const auto a = h.Leases(4);
  for (size_t i = 0; i < 2; ++i)
    h.Propose(PutRollouts{Harness::kActor, {h.Meta(a[i], static_cast<double>(i))}});
  h.AdvanceTo(h.now + 4'990);
  EXPECT_EQ(h.View().groups_ready, 0u);
  h.AdvanceTo(h.now + 40);
  EXPECT_EQ(h.View().groups_ready, 1u);
}

TEST(Primary, AGroupDoesNotInheritTheDeadlineOfTheOneThatHadItsSlot) {
  PrimaryHarness h;
  h.state = State({.shard = ShardId(3), .run_seed = 7, .closed_groups_max = 1});
  h.ledger_number = 0;
  h.settings.complete_deadline_ms = 5'000;
  h.Start();
  h.primary = std::make_unique<Primary>(h.state, h.now, h.options);
  for (int group = 0; group < 2; ++group) {
    for (const Assignment& a : h.Leases(4)) h.Propose(PutRollouts{Harness::kActor, {h.Meta(a, 1)}});
  }
  h.settings.complete_deadline_ms = 0;
  h.PutSource();
  const auto a = h.Leases(4);
  ASSERT_EQ(a.at(0).group.slot(), 0u);
  for (size_t i = 0; i < 2; ++i)
    h.Propose(PutRollouts{Harness::kActor, {h.Meta(a[i], static_cast<double>(i))}});
  h.AdvanceTo(h.now + 6'000);
  EXPECT_EQ(h.View().groups_ready, 0u);
  EXPECT_EQ(h.View().groups_open, 1u);
}

TEST(Primary, ARewardThatDoesNotComeIsTimedOut) {
  PrimaryHarness h;
  h.settings.reward_timeout_ms = 3'000;
  h.PutSource();
  const auto a = h.Leases(2);
  for (const Assignment& assignment : a) {
    RolloutMeta meta = h.Meta(assignment, 0);
    meta.rewards_present = 0;
    h.Propose(PutRollouts{Harness::kActor, {meta}});
  }
  h.AdvanceTo(h.now + 2'000);
  h.Propose(SetRewards{{{a[0].attempt, 1, 1}}});
  h.AdvanceTo(h.now + 1'020);
  EXPECT_EQ(h.Dropped(DropReason::kNoReward), 1u);
  EXPECT_EQ(h.Counters().held, 1u);
}

TEST(Primary, NoNewGroupsWhileTheOpenOnesNeedTheMemory) {
  PrimaryHarness h;
  h.primary->SetMemory(1'000, 100);  // two groups of four
  EXPECT_EQ(h.Leases(4).size(), 4u);
  h.primary->SetMemory(1'000, 100);
  EXPECT_EQ(h.Leases(100).size(), 4u);
  h.AcquireAs(1, 4, 10'000);
  EXPECT_EQ(h.Answer(1), nullptr);
  EXPECT_STREQ(h.primary->IdleReason(), "memory");
  h.primary->SetMemory(4'000, 100);
  EXPECT_LE(h.primary->NextTick(), h.now);
  h.Tick();
  EXPECT_EQ(h.Answer(1)->assignments.size(), 4u);
}

TEST(Primary, OneGroupIsBegunHoweverLittleMemoryThereIs) {
  PrimaryHarness h;
  h.primary->SetMemory(10, 100);
  EXPECT_EQ(h.Leases(100).size(), 4u);
  EXPECT_EQ(h.Leases(100).size(), 0u);
}

TEST(Primary, ASourceThatIsHeldBackGetsNothingUntilItIsLetGo) {
  PrimaryHarness h;
  h.primary->HoldBack({Harness::kSource});
  h.AcquireAs(1, 4, 10'000);
  EXPECT_EQ(h.Answer(1), nullptr);
  EXPECT_STREQ(h.primary->IdleReason(), "memory");
  EXPECT_EQ(h.primary->Summary().sources.at(0).idle, codec::IdleReason::kMemory);
  h.primary->HoldBack({});
  EXPECT_LE(h.primary->NextTick(), h.now);
  h.Tick();
  EXPECT_EQ(h.Answer(1)->assignments.size(), 4u);
}

TEST(Primary, TheSummarySaysWhatIsReadyAndWhyNothingMoves) {
  PrimaryHarness h(0);
  EXPECT_EQ(h.primary->Summary().sources.at(0).idle, codec::IdleReason::kNoTasks);
  EXPECT_STREQ(h.primary->StandstillReason(), "no_tasks");
  h.Propose(AddTasks{Harness::kSource, {{1, 1, PayloadId(1), 1}}});
  EXPECT_EQ(h.primary->Summary().sources.at(0).idle, codec::IdleReason::kNoActors);
  EXPECT_STREQ(h.primary->StandstillReason(), "no_actors");
  h.PushAll(h.Leases(4));
  h.Leases(3);
  const codec::ReadySummary summary = h.primary->Summary();
  ASSERT_EQ(summary.sources.size(), 1u);
  EXPECT_EQ(summary.shard, ShardId(3));
  EXPECT_EQ(summary.sources[0].ready_groups, 1u);
  EXPECT_EQ(summary.sources[0].ready_tokens, 80u);
  EXPECT_EQ(summary.sources[0].open_groups, 1u);
  EXPECT_EQ(summary.sources[0].in_flight, 3u);
  EXPECT_EQ(summary.sources[0].group_bytes, 400u);
  EXPECT_EQ(summary.sources[0].idle, codec::IdleReason::kNone);
  EXPECT_STREQ(h.primary->StandstillReason(), "");
}

TEST(Primary, TheSummaryTellsMemoryAdmissionAndPauseApart) {
  PrimaryHarness h;
  const auto idle = [&h] { return h.primary->Summary().sources.at(0).idle; };
  h.primary->SetMemory(10, 100);
  EXPECT_EQ(idle(), codec::IdleReason::kMemory) << "one group would be begun, and not fit";
  h.primary->SetMemory(1'000'000, 100);
  EXPECT_EQ(idle(), codec::IdleReason::kNoActors);
  h.settings.paused = true;
  h.PutSource();
  EXPECT_EQ(idle(), codec::IdleReason::kPaused);
  h.settings.paused = false;
  h.PutSource();
  h.Commit(h.Versions(5));
  h.Versions(0);
  EXPECT_EQ(idle(), codec::IdleReason::kNoActors);
}

TEST(Primary, TheSummaryCountsAttemptsThatAStepWaitsFor) {
  PrimaryHarness h;
  h.settings.late = codec::LateRule::kWait;
  h.settings.max_lag = 1;
  h.PutSource();
  h.Leases(3);
  EXPECT_EQ(h.primary->Summary().sources[0].waited_for, 0u);
  h.Commit(h.Versions(1));
  EXPECT_EQ(h.primary->Summary().sources[0].waited_for, 3u);
}

TEST(Primary, KnowsWhenASessionWasHeardLast) {
  PrimaryHarness h;
  EXPECT_EQ(h.primary->LastSeen(Harness::kActor), 0u);
  h.Leases(1);
  EXPECT_EQ(h.primary->LastSeen(Harness::kActor), h.now);
}

}  // namespace
}  // namespace forebay::shard
