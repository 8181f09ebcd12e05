#include <cmath>
#include <limits>

#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

TEST(Push, AGroupIsReadyWithItsAdvantagesWhenItsRolloutsAreIn) {
  Harness h;
  h.Start();
  h.Group();
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.View().ready_tokens, 80u);
  uint64_t cursor = 0;
  const auto rollouts = h.state.Rollouts(&cursor, 10);
  ASSERT_EQ(rollouts.size(), 4u);
  EXPECT_EQ(cursor, UINT64_MAX);
  // Rewards 0 1 0 1: mean 0.5, deviation of the sample 0.57735.
  EXPECT_NEAR(rollouts[0].advantage, -0.866, 1e-3);
  EXPECT_NEAR(rollouts[1].advantage, 0.866, 1e-3);
  EXPECT_EQ(rollouts[0].state, GroupState::kReady);
  h.CheckState();
}

TEST(Push, ARepeatedPushIsADuplicateAndChangesNothing) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  ASSERT_EQ(h.Push(a[0], 1), PushResult::kAccepted);
  const uint64_t hash = h.state.Hash();
  RolloutMeta again = h.Meta(a[0], 1);
  EXPECT_EQ(h.Push(again), PushResult::kDuplicate);
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{again.payload});
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(h.Put({again}).accepted, 1u);
}

TEST(Push, ACommandAppliedTwiceKeepsItsPayload) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  const RolloutMeta meta = h.Meta(a[0], 1);
  h.Push(meta);
  h.Push(meta);
  EXPECT_TRUE(h.effects.dead_payloads.empty());
}

TEST(Push, ADuplicateIsStillOneAfterItsGroupIsTrained) {
  Harness h;
  h.Start();
  const auto a = h.Group();
  h.Reserve(1, 1, 0);
  h.Commit(1, 1);
  EXPECT_EQ(h.Push(a[0], 1), PushResult::kDuplicate);
}

TEST(Push, AnExpiredLeaseIsTakenUntilItsAttemptIsHandedOutAgain) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.Apply(Expire{{{a[0].attempt, 1}, {a[1].attempt, 1}}});
  EXPECT_EQ(h.Push(a[0], 1), PushResult::kAccepted);
  const auto again = h.Acquire(1).assignments;
  ASSERT_EQ(again[0].attempt, a[1].attempt);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Push(a[1], 1), PushResult::kLeaseLost);
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(h.Push(again[0], 1), PushResult::kAccepted);
  h.CheckState();
}

TEST(Push, TokensThatWereNeverGivenAreRefused) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(2).assignments;
  const uint64_t hash = h.state.Hash();
  for (uint32_t token : {0u, 2u, 77u}) {
    RolloutMeta meta = h.Meta(a[0], 1);
    meta.lease.token = token;
    const PushOutcome outcome = h.Put({meta}).outcomes[0];
    EXPECT_EQ(outcome.result, token == 0 ? PushResult::kInvalid : PushResult::kLeaseLost);
    EXPECT_STREQ(outcome.field, "token");
  }
  EXPECT_EQ(h.state.Hash(), hash);
}

TEST(Push, UnknownAttemptsAndSessionsAreNamed) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(1).assignments;
  const uint64_t hash = h.state.Hash();
  RolloutMeta meta = h.Meta(a[0], 1);
  EXPECT_STREQ(h.Put({meta}, SessionId(5)).outcomes[0].field, "session");
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{meta.payload});
  meta.lease.attempt = AttemptId(a[0].attempt.value ^ (uint64_t{1} << 33));
  const PushOutcome outcome = h.Put({meta}).outcomes[0];
  EXPECT_EQ(outcome.result, PushResult::kUnknown);
  EXPECT_STREQ(outcome.field, "attempt_id");
  EXPECT_EQ(h.state.Hash(), hash);
}

struct BadCase {
  const char* what;
  const char* field;
  PushResult result;
  void (*spoil)(RolloutMeta&);
};

TEST(Push, BadRolloutsAreRefusedByFieldAndChangeNothing) {
  const BadCase cases[] = {
      {"nan", "rewards", PushResult::kInvalid, [](RolloutMeta& m) { m.reward = std::nan(""); }},
      {"infinite", "rewards", PushResult::kInvalid,
       [](RolloutMeta& m) { m.reward = std::numeric_limits<double>::infinity(); }},
      {"no reward", "rewards", PushResult::kInvalid, [](RolloutMeta& m) { m.rewards_present = 0; }},
      {"other rewards", "rewards", PushResult::kInvalid,
       [](RolloutMeta& m) { m.rewards_present = 3; }},
      {"no tokens", "sequences.tokens", PushResult::kInvalid,
       [](RolloutMeta& m) { m.first.tokens = 0; }},
      {"prompt", "sequences.prompt_tokens", PushResult::kInvalid,
       [](RolloutMeta& m) { m.first.prompt_tokens = 21; }},
      {"loss", "sequences.loss_tokens", PushResult::kInvalid,
       [](RolloutMeta& m) { m.first.loss_tokens = 21; }},
      {"advantage", "sequences.advantage", PushResult::kInvalid,
       [](RolloutMeta& m) { m.first.advantage = std::nanf(""); }},
      {"future", "versions", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.first.versions = {{0, {0, 9}, 10}};
       }},
      {"future branch", "versions", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.first.versions = {{0, {4, 0}, 10}};
       }},
      {"offset", "versions.offset", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.first.versions = {{1, {0, 0}, 10}};
       }},
      {"falling offsets", "versions.offset", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.first.versions = {{0, {0, 0}, 5}, {0, {0, 0}, 5}};
       }},
      {"offset beyond", "versions.offset", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.first.versions = {{0, {0, 0}, 5}, {20, {0, 0}, 5}};
       }},
      {"loss of runs", "versions.loss_tokens", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.first.versions = {{0, {0, 0}, 9}};
       }},
      {"second sequence", "sequences.tokens", PushResult::kInvalid,
       [](RolloutMeta& m) { m.more.resize(1); }},
      {"too many tokens", "sequences.tokens", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.more.assign(2, {UINT32_MAX, 0, 0, std::nullopt, {}});
       }},
      {"too many sequences", "sequences", PushResult::kInvalid,
       [](RolloutMeta& m) {
         m.more.assign(1024, {1, 0, 0, std::nullopt, {}});
       }},
      {"status", "status", PushResult::kInvalid,
       [](RolloutMeta& m) { m.status = static_cast<RolloutStatus>(9); }},
  };
  Harness h;
  h.Start();
  const auto a = h.Acquire(1).assignments;
  const uint64_t hash = h.state.Hash();
  for (const BadCase& c : cases) {
    RolloutMeta meta = h.Meta(a[0], 1);
    c.spoil(meta);
    const PushOutcome outcome = h.Put({meta}).outcomes[0];
    EXPECT_EQ(outcome.result, c.result) << c.what;
    EXPECT_STREQ(outcome.field, c.field) << c.what;
    EXPECT_FALSE(outcome.message.empty()) << c.what;
    EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{meta.payload}) << c.what;
    EXPECT_EQ(h.state.Hash(), hash) << c.what;
  }
  EXPECT_EQ(h.Push(a[0], 1), PushResult::kAccepted);
}

TEST(Push, OneBadRolloutDoesNotHoldUpTheOthers) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(2).assignments;
  RolloutMeta bad = h.Meta(a[0], 1);
  bad.first.tokens = 0;
  const PutRolloutsReply reply = h.Put({bad, h.Meta(a[1], 1)});
  EXPECT_EQ(reply.accepted, 1u);
  EXPECT_EQ(reply.outcomes[0].result, PushResult::kInvalid);
  EXPECT_EQ(reply.outcomes[1].result, PushResult::kAccepted);
}

TEST(Push, OverSampledGroupsCloseTheirLastAttempts) {
  Harness h;
  h.settings.attempts_per_task = 6;
  h.Start();
  const auto a = h.Acquire(6).assignments;
  ASSERT_EQ(a.size(), 6u);
  for (size_t i = 0; i < 4; ++i) h.Push(a[i], static_cast<double>(i % 2));
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_EQ(h.View().in_flight, 0u);
  EXPECT_EQ(h.View().outstanding, 4u);
  EXPECT_EQ(h.Push(a[4], 1), PushResult::kLate);
  EXPECT_EQ(h.Counters().late, 1u);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Push(a[4], 1), PushResult::kLate);
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_LT(h.View().survival, 1);
  h.CheckState();
}

TEST(Push, TruncatedRolloutsAreDroppedOrMaskedByRule) {
  for (const auto rule :
       {codec::TruncatedRule::kDrop, codec::TruncatedRule::kMask, codec::TruncatedRule::kTrain}) {
    Harness h;
    h.settings.truncated = rule;
    h.Start();
    const auto a = h.Acquire(4).assignments;
    RolloutMeta meta = h.Meta(a[0], 1);
    meta.status = RolloutStatus::kTruncated;
    EXPECT_EQ(h.Push(meta), PushResult::kAccepted);
    for (size_t i = 1; i < 4; ++i) h.Push(a[i], static_cast<double>(i % 2));
    const codec::Reserved reserved = h.Reserve(1, 1, 0);
    ASSERT_EQ(reserved.groups.size(), 1u);
    const auto& rollouts = reserved.groups[0].rollouts;
    EXPECT_EQ(rollouts.size(), rule == codec::TruncatedRule::kDrop ? 3u : 4u);
    EXPECT_EQ(h.Dropped(DropReason::kTruncated), rule == codec::TruncatedRule::kDrop ? 1u : 0u);
    if (rule == codec::TruncatedRule::kMask) {
      EXPECT_EQ(rollouts[0].mask_below, UINT32_MAX);
      EXPECT_EQ(rollouts[0].sequences[0].loss_tokens, 0u);
    }
    h.CheckState();
  }
}

TEST(Push, AbortedAttemptsAreRetriedAndCountAsFailures) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  RolloutMeta meta = h.Meta(a[0], 0);
  meta.status = RolloutStatus::kAborted;
  EXPECT_EQ(h.Push(meta), PushResult::kAccepted);
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{meta.payload});
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Push(meta), PushResult::kDuplicate);
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(h.Counters().failed, 1u);
  EXPECT_EQ(h.Acquire(1).assignments[0].attempt, a[0].attempt);
  h.CheckState();
}

TEST(Push, AbortedAttemptsAreDroppedIfTheSourceSaysSo) {
  Harness h;
  h.settings.aborted = codec::AbortedRule::kDrop;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 0; i < 4; ++i) {
    RolloutMeta meta = h.Meta(a[i], static_cast<double>(i % 2));
    if (i == 0) meta.status = RolloutStatus::kAborted;
    h.Push(meta);
  }
  EXPECT_EQ(h.Dropped(DropReason::kAborted), 1u);
  EXPECT_EQ(h.View().groups_ready, 1u);
  h.CheckState();
}

TEST(Push, PartialAttemptsAreContinuedByWhoeverGetsThemNext) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  RolloutMeta partial = h.Meta(a[2], 0);
  partial.partial = true;
  partial.rewards_present = 0;
  EXPECT_EQ(h.Push(partial), PushResult::kAccepted);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Push(partial), PushResult::kDuplicate);
  EXPECT_TRUE(h.effects.dead_payloads.empty());
  EXPECT_EQ(h.state.Hash(), hash);
  const auto next = h.Acquire(1).assignments;
  EXPECT_EQ(next[0].attempt, a[2].attempt);
  EXPECT_EQ(next[0].number, a[2].number);
  EXPECT_EQ(next[0].partial, partial.payload);
  RolloutMeta second = h.Meta(next[0], 0);
  second.partial = true;
  h.Push(second);
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{partial.payload});
  const auto last = h.Acquire(1).assignments;
  h.Push(last[0], 1);
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{second.payload});
  EXPECT_EQ(h.Counters().partials, 2u);
  h.CheckState();
}

TEST(Push, AContinuedRolloutIsAsOldAsItsPrefix) {
  Harness h;
  h.settings.max_lag = 5;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  RolloutMeta partial = h.Meta(a[0], 0);
  partial.partial = true;
  h.Push(partial);
  h.FromLedger(h.Versions(2));
  const auto next = h.Acquire(1).assignments;
  EXPECT_EQ(next[0].version.number, 2u);
  h.Push(next[0], 1);
  uint64_t cursor = 0;
  EXPECT_EQ(h.state.Rollouts(&cursor, 10)[0].version.number, 0u);
}

TEST(Push, APrefixThatIsTooOldIsNotContinued) {
  Harness h;
  h.settings.max_lag = 1;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  RolloutMeta partial = h.Meta(a[0], 0);
  partial.partial = true;
  h.Push(partial);
  h.FromLedger(h.Versions(2));
  const auto next = h.Acquire(1).assignments;
  EXPECT_EQ(next[0].attempt, a[0].attempt);
  EXPECT_EQ(next[0].partial, PayloadId());
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{partial.payload});
}

TEST(Push, AStaleRolloutIsRefusedAndItsAttemptHandedOutAgain) {
  Harness h;
  h.settings.max_lag = 1;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.FromLedger(h.Versions(2));
  const PushOutcome outcome = h.Put({h.Meta(a[0], 1)}).outcomes[0];
  EXPECT_EQ(outcome.result, PushResult::kStale);
  EXPECT_STREQ(outcome.field, "versions");
  EXPECT_EQ(h.Counters().stale, 1u);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(h.Push(a[0], 1), PushResult::kStale);
  EXPECT_EQ(h.state.Hash(), hash);
  const auto next = h.Acquire(1).assignments;
  EXPECT_EQ(next[0].attempt, a[0].attempt);
  EXPECT_EQ(next[0].version.number, 2u);
  h.CheckState();
}

TEST(Push, WorkOnAnAbandonedBranchIsStale) {
  Harness h;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  h.Push(a[0], 1);
  h.branch = 1;
  h.FromLedger(h.Versions(0));
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 1u);
  EXPECT_EQ(h.Push(a[1], 1), PushResult::kStale);
  h.CheckState();
}

TEST(Rewards, ALateRewardCompletesTheGroup) {
  Harness h;
  h.settings.reward_timeout_ms = 1000;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  for (size_t i = 0; i < 4; ++i) {
    RolloutMeta meta = h.Meta(a[i], 0);
    if (i < 2) meta.rewards_present = 0;
    ASSERT_EQ(h.Push(meta), PushResult::kAccepted);
  }
  EXPECT_EQ(h.View().groups_ready, 0u);
  const auto set = [&](size_t i, uint8_t present, double reward) {
    return h.Ask<SetRewardsReply>(SetRewards{{{a[i].attempt, present, reward}}}).results[0];
  };
  EXPECT_EQ(set(0, 1, 1), PushResult::kAccepted);
  EXPECT_EQ(set(0, 1, 1), PushResult::kDuplicate);
  const uint64_t hash = h.state.Hash();
  EXPECT_EQ(set(1, 2, 1), PushResult::kInvalid);
  EXPECT_EQ(set(1, 1, std::nan("")), PushResult::kInvalid);
  EXPECT_EQ(h.state.Hash(), hash);
  EXPECT_EQ(set(1, 1, 0), PushResult::kAccepted);
  EXPECT_EQ(h.View().groups_ready, 1u);
  EXPECT_NEAR(h.View().mean_reward, 0.25, 1e-9);
  h.CheckState();
}

TEST(Rewards, SeveralRewardsAddUp) {
  Harness h;
  h.settings.rewards = {{"format", 0.5}, {"right", 1}};
  h.settings.reward_timeout_ms = 1000;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  RolloutMeta meta = h.Meta(a[0], 0.5);
  ASSERT_EQ(h.Push(meta), PushResult::kAccepted);
  uint64_t cursor = 0;
  EXPECT_FALSE(h.state.Rollouts(&cursor, 1)[0].rewarded);
  h.Apply(SetRewards{{{a[0].attempt, 2, 1.0}}});
  cursor = 0;
  const RolloutView view = h.state.Rollouts(&cursor, 1)[0];
  EXPECT_TRUE(view.rewarded);
  EXPECT_EQ(view.reward, 1.5);
}

TEST(Rewards, ARolloutWhoseRewardNeverComesIsDroppedAndRetried) {
  Harness h;
  h.settings.reward_timeout_ms = 1000;
  h.Start();
  const auto a = h.Acquire(4).assignments;
  RolloutMeta meta = h.Meta(a[0], 0);
  meta.rewards_present = 0;
  h.Push(meta);
  h.Apply(GroupsTimedOut{{}, {a[0].attempt}});
  EXPECT_EQ(h.effects.dead_payloads, std::vector<PayloadId>{meta.payload});
  EXPECT_EQ(h.Dropped(DropReason::kNoReward), 1u);
  EXPECT_EQ(h.Push(meta), PushResult::kDuplicate);
  EXPECT_EQ(h.Ask<SetRewardsReply>(SetRewards{{{a[0].attempt, 1, 1}}}).results[0],
            PushResult::kUnknown);
  EXPECT_EQ(h.Acquire(1).assignments[0].attempt, a[0].attempt);
  h.CheckState();
}

}  // namespace
}  // namespace forebay::shard
