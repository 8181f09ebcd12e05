#include "rollout/tables.h"

#include <gtest/gtest.h>

namespace forebay::rollout {
namespace {

const SequenceMeta kOne = {10, 2, 8, std::nullopt, {}};

TEST(Tables, ARolloutCostsLessThanTwoHundredBytesWithAllThatBelongsToIt) {
  EXPECT_LE(sizeof(RolloutRecord) + sizeof(AttemptRecord) + sizeof(GroupRecord) / 16.0, 192);
}

TEST(Tables, AttemptsAreHandedOutByNumberAndThoseThatComeBackFirst) {
  Tables tables(ShardId(0));
  const uint32_t group = tables.AddGroup(TaskId(), 3, 1);
  const uint32_t a = tables.Lease(group, 0, 5);
  const uint32_t b = tables.Lease(group, 0, 5);
  EXPECT_EQ(tables.attempt(a).number, 0);
  EXPECT_EQ(tables.attempt(b).number, 1);
  tables.MakePending(a);
  EXPECT_EQ(tables.Lease(group, 0, 6), a);
  EXPECT_EQ(tables.attempt(a).token, 2u);
  EXPECT_EQ(tables.attempt(a).version, 6u);
  EXPECT_STREQ(tables.Check(), "");
}

TEST(Tables, APendingAttemptCanBeSettled) {
  Tables tables(ShardId(0));
  const uint32_t group = tables.AddGroup(TaskId(), 4, 1);
  const uint32_t first = tables.group(group).first_attempt;
  const uint32_t second = tables.attempt(first).next;
  tables.Settle(second, AttemptState::kClosed);
  EXPECT_STREQ(tables.Check(), "");
  tables.Settle(first, AttemptState::kDone);
  EXPECT_EQ(tables.group(group).pending, 2);
  EXPECT_EQ(tables.attempt(tables.Lease(group, 0, 0)).number, 2);
  EXPECT_STREQ(tables.Check(), "");
}

TEST(Tables, KeepsSequencesOnlyWhereTheyAreMoreThanOnePlainOne) {
  Tables tables(ShardId(0));
  const uint32_t group = tables.AddGroup(TaskId(), 2, 1);
  const uint32_t a = tables.Lease(group, 0, 5);
  const uint32_t b = tables.Lease(group, 0, 5);
  tables.Settle(a, AttemptState::kDone);
  tables.Settle(b, AttemptState::kDone);
  const uint32_t plain = tables.AddRollout(a, std::span(&kOne, 1), {0, 5}, true);
  const std::vector<SequenceMeta> two = {kOne, {20, 3, 7, 0.5f, {{0, {0, 2}, 3}, {9, {0, 6}, 4}}}};
  const uint32_t many = tables.AddRollout(b, two, {0, 5}, false);
  EXPECT_TRUE(tables.IsPlain(plain));
  EXPECT_FALSE(tables.IsPlain(many));
  EXPECT_EQ(tables.rollout(many).tokens, 30u);
  EXPECT_EQ(tables.rollout(many).loss_tokens, 15u);
  EXPECT_EQ(tables.rollout(many).version.number, 2u);
  SequenceMeta scratch;
  EXPECT_EQ(tables.Sequences(plain, &scratch)[0], kOne);
  // A sequence without runs is of the assigned version, said outright beside others that have runs.
  const auto kept = tables.Sequences(many, &scratch);
  EXPECT_EQ(kept[0].versions, (std::vector<VersionRun>{{0, {0, 5}, 8}}));
  EXPECT_EQ(kept[1], two[1]);
  EXPECT_STREQ(tables.Check(), "");
  EXPECT_EQ(tables.group(group).rewarded, 1);
  tables.SetRewarded(many);
  EXPECT_EQ(tables.group(group).rewarded, 2);
  tables.RemoveRollout(many);
  tables.RemoveRollout(plain);
  EXPECT_EQ(tables.group(group).held(), 0u);
  EXPECT_STREQ(tables.Check(), "");
}

TEST(Tables, ARemovedGroupsIdsFindNothing) {
  Tables tables(ShardId(2));
  const uint32_t group = tables.AddGroup(TaskId(), 1, 1);
  const GroupId id = tables.IdOfGroup(group);
  const uint32_t a = tables.Lease(group, 0, 0);
  const AttemptId attempt = tables.IdOfAttempt(a);
  EXPECT_EQ(tables.Find(attempt), a);
  tables.Settle(a, AttemptState::kClosed);
  tables.group(group).state = GroupState::kClosed;
  tables.RemoveGroup(group);
  EXPECT_EQ(tables.Find(id), kNone);
  EXPECT_EQ(tables.Find(attempt), kNone);
}

TEST(Tables, TheCheckNoticesDamage) {
  const auto fresh = [] {
    Tables tables(ShardId(0));
    const uint32_t group = tables.AddGroup(TaskId(), 3, 1);
    const uint32_t a = tables.Lease(group, 0, 5);
    tables.Settle(a, AttemptState::kDone);
    tables.AddRollout(a, std::span(&kOne, 1), {0, 5}, true);
    return tables;
  };
  const auto damaged = [&](auto damage) {
    Tables tables = fresh();
    damage(tables);
    return tables.Check()[0] != '\0';
  };
  EXPECT_FALSE(damaged([](Tables&) {}));
  EXPECT_TRUE(damaged([](Tables& t) { t.attempt(0).group = 7; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.attempt(0).rollout = 9; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.attempt(1).state = AttemptState::kLeased; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.attempt(2).next = 0; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.attempt(2).link = 1; }));
  EXPECT_TRUE(damaged([](Tables& t) { ++t.group(0).rewarded; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.group(0).first_attempt = 1; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.rollout(0).attempt = 1; }));
  EXPECT_TRUE(damaged([](Tables& t) { t.group(0).state = GroupState::kReady; }));
}

}  // namespace
}  // namespace forebay::rollout
