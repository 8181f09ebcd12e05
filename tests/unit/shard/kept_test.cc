// What stays of committed steps for people to look at, when all else of these went.
#include "shard/kept.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "shard/limits.h"
#include "tests/unit/shard/harness.h"

namespace forebay::shard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr codec::KeepRule kAll{1, false, 10'000};
constexpr codec::KeepRule kFlagged{0, true, 10'000};

class KeptTest : public testing::Test {
 protected:
  void SetUp() override {
    h.settings.order = codec::Order::kStatic;
    h.settings.truncated = codec::TruncatedRule::kTrain;
    h.Start(400);
  }
  // The step trains one group, whose first rollout may be truncated.
  void Train(uint64_t step, bool retain, bool truncated = false) {
    const auto group = h.Acquire(4).assignments;
    for (size_t i = 0; i < group.size(); ++i) {
      RolloutMeta meta = h.Meta(group[i], static_cast<double>(i % 2));
      if (truncated && i == 0) meta.status = RolloutStatus::kTruncated;
      ASSERT_EQ(h.Push(meta), PushResult::kAccepted);
    }
    ASSERT_THAT(h.Reserve(step, 1, static_cast<uint32_t>(step - 1)).groups, SizeIs(1));
    h.Commit(step, static_cast<uint32_t>(step), retain);
    dead.insert(dead.end(), h.effects.dead_payloads.begin(), h.effects.dead_payloads.end());
    h.FromLedger(h.Versions(static_cast<uint32_t>(step)));
  }
  std::vector<RolloutView> Kept() const {
    uint64_t cursor = 0;
    return h.state.Kept(&cursor, SIZE_MAX);
  }
  std::vector<uint64_t> KeptPayloads() const {
    std::vector<uint64_t> ids;
    for (const RolloutView& view : Kept()) ids.push_back(view.payload.value);
    std::ranges::sort(ids);
    return ids;
  }
  std::vector<uint64_t> Held() const {
    uint64_t cursor = 0;
    std::vector<uint64_t> ids;
    for (const RolloutView& view : h.state.Rollouts(&cursor, SIZE_MAX)) {
      ids.push_back(view.payload.value);
    }
    return ids;
  }

  Harness h;
  std::vector<PayloadId> dead;  // by commits
};

TEST_F(KeptTest, ACommitThatRetainsNothingKeepsWhatTheRuleTakesOnDiskAlone) {
  h.keep = kFlagged;
  Train(1, false, true);
  EXPECT_THAT(KeptPayloads(), ElementsAre(1));
  EXPECT_THAT(dead, ElementsAre(PayloadId(2), PayloadId(3), PayloadId(4)));
  EXPECT_EQ(h.state.kept_bytes(), 100u);
  EXPECT_EQ(h.state.payload_bytes(), 0u);
  EXPECT_EQ(h.state.retained_bytes(), 0u);
  EXPECT_THAT(Held(), IsEmpty());
  EXPECT_EQ(h.Counters().trained, 4u);
  h.CheckState();
}

TEST_F(KeptTest, KeptRolloutsNeedNoMemory) {
  h.keep = kAll;
  h.Group();
  h.Reserve(1, 1, 0);
  h.Commit(1, 1, false);
  EXPECT_THAT(h.effects.cold_payloads,
              ElementsAre(PayloadId(1), PayloadId(2), PayloadId(3), PayloadId(4)));
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
}

TEST_F(KeptTest, TheyAreShownAsTheyWere) {
  h.keep = kFlagged;
  Train(1, true, true);
  uint64_t cursor = 0;
  const RolloutView before = h.state.Rollouts(&cursor, 1).at(0);
  ASSERT_EQ(before.payload, PayloadId(1));
  EXPECT_FALSE(before.kept);
  h.FromLedger(codec::StepsCovered{StepId(1), kFlagged});
  const auto after = h.state.FindKept(before.rollout);
  ASSERT_TRUE(after.has_value());
  EXPECT_TRUE(after->kept);
  EXPECT_EQ(after->rollout, before.rollout);
  EXPECT_EQ(after->group, before.group);
  EXPECT_EQ(after->attempt, before.attempt);
  EXPECT_EQ(after->task, before.task);
  EXPECT_EQ(after->step, StepId(1));
  EXPECT_EQ(after->status, RolloutStatus::kTruncated);
  EXPECT_EQ(after->rewarded, before.rewarded);
  EXPECT_EQ(after->reward, before.reward);
  EXPECT_EQ(after->advantage, before.advantage);
  EXPECT_EQ(after->tokens, before.tokens);
  EXPECT_EQ(after->loss_tokens, before.loss_tokens);
  EXPECT_EQ(after->version, before.version);
  EXPECT_EQ(after->payload_bytes, before.payload_bytes);
  EXPECT_FALSE(h.state.FindKept(RolloutId(before.rollout.value + 1)).has_value());
}

TEST_F(KeptTest, TheRuleOfTheMessageThatReleasesDecides) {
  h.keep = kAll;
  Train(1, true);
  Train(2, true);
  Train(3, true);
  EXPECT_THAT(Kept(), IsEmpty()) << "they stay for a rewind";
  EXPECT_EQ(h.state.retained_bytes(), 1200u);
  h.FromLedger(codec::StepsReleased{StepId(1), kAll});
  EXPECT_THAT(KeptPayloads(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
  h.FromLedger(codec::StepsCovered{StepId(2), kFlagged});
  EXPECT_THAT(KeptPayloads(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  EXPECT_EQ(h.state.retained_bytes(), 400u);
  h.CheckState();
}

TEST_F(KeptTest, TheOldestGoWhenTheyAreTooMany) {
  h.keep = {1, false, 600};
  Train(1, false);
  Train(2, false);
  EXPECT_THAT(KeptPayloads(), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_THAT(dead, ElementsAre(PayloadId(1), PayloadId(2)));
  EXPECT_EQ(h.state.kept_bytes(), 600u);
  h.CheckState();
  // A limit that was lowered holds from the next step on, whatever becomes of that.
  h.keep.bytes_max = 150;
  Train(3, true);
  EXPECT_THAT(KeptPayloads(), ElementsAre(8));
  h.keep.bytes_max = 0;
  Train(4, true);
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_EQ(h.state.kept_bytes(), 0u);
  h.CheckState();
}

TEST_F(KeptTest, OneThatIsLargerThanTheLimitIsNotKeptAndPushesNoneOut) {
  h.keep = {1, false, 400};
  Train(1, false);
  h.keep.bytes_max = 99;
  h.FromLedger(codec::StepsReleased{StepId(1), {1, false, 400}});
  EXPECT_THAT(KeptPayloads(), SizeIs(4));
  Train(2, false);
  EXPECT_THAT(Kept(), IsEmpty());
  EXPECT_THAT(dead, SizeIs(8));
}

TEST_F(KeptTest, ARewindLeavesThem) {
  h.keep = kAll;
  Train(1, false);
  Train(2, false);
  h.GoBack(0, 0, 0, 2);
  EXPECT_THAT(h.effects.dead_payloads, IsEmpty());
  EXPECT_THAT(KeptPayloads(), SizeIs(8));
  EXPECT_EQ(h.Counters().trained, 0u);
  EXPECT_EQ(h.Dropped(DropReason::kRewound), 8u);
  h.CheckState();
}

TEST_F(KeptTest, WhatARewindTakesBackIsNotKept) {
  h.keep = kAll;
  Train(1, true);
  h.GoBack(0, 0, 0, 1);
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  EXPECT_THAT(Kept(), IsEmpty());
  h.CheckState();
}

TEST_F(KeptTest, ADamagedOneIsLetGo) {
  h.keep = kAll;
  Train(1, false);
  const auto found = h.state.FindPayloads({PayloadId(2), PayloadId(99)});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].payload, PayloadId(2));
  EXPECT_EQ(h.Ask<CountReply>(DropDamaged{found}).count, 1u);
  EXPECT_THAT(h.effects.dead_payloads, ElementsAre(PayloadId(2)));
  EXPECT_THAT(h.effects.to_ledger, IsEmpty());
  EXPECT_THAT(KeptPayloads(), ElementsAre(1, 3, 4));
  EXPECT_EQ(h.Dropped(DropReason::kDamaged), 0u) << "it was trained";
  EXPECT_EQ(h.Ask<CountReply>(DropDamaged{found}).count, 0u);
  h.CheckState();
}

TEST_F(KeptTest, OneThatWasDamagedBeforeItsStepWasCommittedIsNotKept) {
  h.keep = kAll;
  const auto group = h.Group();
  h.Reserve(1, 1, 0);
  h.Ask<CountReply>(DropDamaged{{{group[1].attempt, PayloadId(2)}}});
  h.Commit(1, 1, false);
  EXPECT_THAT(h.effects.dead_payloads, ElementsAre(PayloadId(2)));
  EXPECT_THAT(KeptPayloads(), ElementsAre(1, 3, 4));
  h.CheckState();
}

TEST_F(KeptTest, AnOperatorDropsThemByName) {
  h.keep = kAll;
  Train(1, false);
  const auto kept = Kept();
  DropByOperator drop{Harness::kSource, false, {kept[0].rollout, kept[2].rollout, kept[0].rollout}};
  const auto reply = h.Ask<CountReply>(drop);
  ASSERT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.count, 2u);
  EXPECT_THAT(h.effects.dead_payloads, UnorderedElementsAre(kept[0].payload, kept[2].payload));
  EXPECT_THAT(KeptPayloads(), SizeIs(2));
  EXPECT_EQ(h.Dropped(DropReason::kOperator), 0u) << "they were trained";
  h.CheckState();
  EXPECT_THAT(std::string(h.Ask<CountReply>(drop).status.message()), HasSubstr("holds no rollout"));
  // By the name of another source they are not found.
  codec::SourceSettings other = h.settings;
  other.name = "code";
  h.FromLedger(codec::SourceChanged{SourceId(1), other});
  EXPECT_FALSE(
      h.Ask<CountReply>(DropByOperator{SourceId(1), false, {kept[1].rollout}}).status.ok());
  EXPECT_THAT(KeptPayloads(), SizeIs(2));
}

TEST_F(KeptTest, EachPayloadIsNamedOnce) {
  h.keep = kFlagged;
  Train(1, false, true);
  Train(2, true);
  h.Group();
  std::vector<uint64_t> named;
  h.state.ForEachPayload([&](PayloadId id) { named.push_back(id.value); }, [](PayloadId) {});
  EXPECT_THAT(named, UnorderedElementsAre(1, 5, 6, 7, 8, 9, 10, 11, 12));
}

TEST_F(KeptTest, SnapshotsHoldThem) {
  h.keep = {1, true, 700};
  Train(1, false);
  Train(2, false);
  std::string bytes;
  codec::Writer writer(&bytes);
  h.state.Snapshot(writer);
  State restored(Options{ShardId(3), 7});
  codec::Reader reader(bytes);
  ASSERT_TRUE(restored.Restore(reader));
  ASSERT_TRUE(reader.Done());
  EXPECT_EQ(restored.Hash(), h.state.Hash());
  EXPECT_EQ(restored.kept_bytes(), 700u);
  for (const RolloutView& view : Kept()) {
    EXPECT_EQ(restored.FindKept(view.rollout).value().payload, view.payload);
  }
  // The order in which they go is the same.
  Effects effects;
  const codec::StepsReleased release{StepId(0), {1, true, 300}};
  restored.Apply(FromLedger{h.ledger_number + 1, release}, 0, &effects);
  h.FromLedger(release);
  EXPECT_EQ(restored.Hash(), h.state.Hash());
  EXPECT_THAT(h.effects.dead_payloads, SizeIs(4));
  EXPECT_EQ(effects.dead_payloads, h.effects.dead_payloads);
}

// The chance that a fair draw is further off is below one in a million; it is always the same one.
TEST_F(KeptTest, TheSampleIsAboutAsLargeAsItSays) {
  h.keep = {0.25, false, 1'000'000};
  for (uint64_t step = 1; step <= 300; ++step) Train(step, step % 2 == 0);
  h.FromLedger(codec::StepsCovered{StepId(300), h.keep});
  EXPECT_NEAR(static_cast<double>(h.state.kept_rollouts()), 300, 75);
  h.CheckState();
}

TEST_F(KeptTest, TheSampleDependsOnTheRunAndTheRolloutAlone) {
  const codec::KeepRule half{0.5, false, 1'000};
  KeptRecord record;
  uint64_t differ = 0;
  for (uint64_t id = 1; id <= 1'000; ++id) {
    record.rollout = RolloutId(id);
    differ += Takes(half, 7, record) != Takes(half, 8, record);
    ASSERT_EQ(Takes(half, 7, record), Takes({0.5, true, 2'000}, 7, record));
    ASSERT_TRUE(!Takes(half, 7, record) || Takes({0.75, false, 1'000}, 7, record))
        << "a larger sample holds the smaller one";
    ASSERT_FALSE(Takes({0, false, 1'000}, 7, record));
    ASSERT_TRUE(Takes({1, false, 1'000}, 7, record));
    ASSERT_FALSE(Takes({std::nan(""), false, 1'000}, 7, record));
    ASSERT_FALSE(Takes({1, true, 0}, 7, record));
  }
  EXPECT_GT(differ, 300u);
}

KeptRecord RecordOf(uint64_t id, uint64_t payload, uint64_t bytes) {
  KeptRecord record;
  record.rollout = RolloutId(id);
  record.payload = PayloadId(payload);
  record.payload_bytes = bytes;
  return record;
}

TEST(KeptRollouts, ThereIsALimitOfTheirNumber) {
  KeptRollouts kept;
  KeptRollouts::Dead dead;
  const codec::KeepRule rule{1, false, UINT64_MAX};
  for (uint64_t id = 1; id <= kKeptMax + 3; ++id) {
    kept.Add(RecordOf(id, id, 1), &dead);
    kept.Trim(rule, &dead);
  }
  EXPECT_EQ(kept.size(), kKeptMax);
  EXPECT_THAT(dead, ElementsAre(PayloadId(1), PayloadId(2), PayloadId(3)));
  EXPECT_STREQ(kept.Check(ShardId(0)), "");
}

TEST(KeptRollouts, AnIdThatComesAgainTakesThePlaceOfTheOlder) {
  KeptRollouts kept;
  KeptRollouts::Dead dead;
  for (const uint64_t id : {1, 2, 3}) kept.Add(RecordOf(id, 10 + id, 5), &dead);
  kept.Add(RecordOf(2, 22, 7), &dead);
  EXPECT_THAT(dead, ElementsAre(PayloadId(12)));
  EXPECT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept.payload_bytes(), 17u);
  EXPECT_EQ(kept.table()[kept.Find(RolloutId(2))].payload, PayloadId(22));
  EXPECT_STREQ(kept.Check(ShardId(0)), "");
  dead.clear();
  kept.Trim({1, false, 7}, &dead);
  EXPECT_THAT(dead, ElementsAre(PayloadId(11), PayloadId(13))) << "it is the newest";
}

TEST(KeptRollouts, ABrokenSnapshotIsSeen) {
  KeptRollouts kept;
  KeptRollouts::Dead dead;
  for (const uint64_t id : {1, 2, 3}) kept.Add(RecordOf(id, 10 + id, 5), &dead);
  std::string bytes;
  codec::Writer writer(&bytes);
  kept.Snapshot(writer);
  const auto whole = [](std::string_view from) {
    KeptRollouts restored;
    codec::Reader reader(from);
    return restored.Restore(reader) && reader.Done() && restored.Check(ShardId(0))[0] == '\0';
  };
  EXPECT_TRUE(whole(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(whole(std::string_view(bytes).substr(0, size))) << size;
  }
  std::string miscounted = bytes;
  ++miscounted[bytes.size() - 8];  // the last is the sum of bytes
  EXPECT_FALSE(whole(miscounted));
  EXPECT_STRNE(kept.Check(ShardId(1)), "");
}

}  // namespace
}  // namespace forebay::shard
