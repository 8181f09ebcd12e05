// What a shard tells the ledger when its log commits several commands at once, as a disk does.
#include "node/shard_loop.h"

#include <gtest/gtest.h>

#include <vector>

#include "codec/archive.h"
#include "tests/unit/shard/harness.h"

namespace forebay::node {
namespace {

class BatchLog final : public Log<shard::Command> {
 public:
  explicit BatchLog(LogPosition last) : last_(last), committed_(last) {}
  void Append(LogPosition position, const shard::Command&) override { last_ = position; }
  LogPosition committed() const override { return committed_; }
  void CommitAll() { committed_ = last_; }

 private:
  LogPosition last_, committed_;
};

struct Summaries final : ShardPort {
  void OnReply(shard::Tag, shard::Reply&&) override {}
  void OnDead(const std::vector<PayloadId>&, const std::vector<PayloadId>&) override {}
  void OnCold(const std::vector<PayloadId>&) override {}
  void SendToLedger(const codec::NumberedMessage&) override {}
  void AcknowledgeLedger(uint64_t) override {}
  void OnSummary(const codec::ReadySummary& summary) override { told.push_back(summary); }
  std::vector<codec::ReadySummary> told;
};

class ShardLoopTest : public ::testing::Test {
 protected:
  // Two equal groups: one is held by step 1, the other is ready.
  ShardLoopTest() {
    shard_.Start();
    shard_.Group();
    shard_.Group();
    EXPECT_EQ(shard_.Reserve(1, 1, 0).groups.size(), 1u);
    loop_.emplace(&shard_.state, &log_, &port_, 0);
    loop_->Tick(0);
    EXPECT_EQ(port_.told.size(), 1u);
    EXPECT_EQ(ReadyGroups(), 1u);
  }
  void FromLedger(const codec::ToShard& message) {
    loop_->FromLedger(0, {.number = ++shard_.ledger_number, .body = codec::Encode(message)});
  }
  codec::Reserve OneGroupForStep(uint64_t step) const {
    return {.step = StepId(step), .revision = Revision(1), .request = step, .groups = 1};
  }
  void CommitAll() {
    log_.CommitAll();
    loop_->OnCommitted(0);
  }
  uint32_t ReadyGroups() const { return port_.told.back().sources.at(0).ready_groups; }
  uint64_t Reserved() const { return shard_.View().groups_reserved; }

  shard::Harness shard_;
  BatchLog log_{LogPosition()};
  Summaries port_;
  std::optional<ShardLoop> loop_;
};

TEST_F(ShardLoopTest, AGroupThatIsReservedWhileAnotherComesBackIsToldAnew) {
  FromLedger(OneGroupForStep(2));
  FromLedger(codec::Unreserve{.step = StepId(1)});
  EXPECT_EQ(port_.told.size(), 1u);
  CommitAll();
  EXPECT_EQ(Reserved(), 1u);
  ASSERT_EQ(port_.told.size(), 2u);
  EXPECT_EQ(ReadyGroups(), 1u);
  EXPECT_EQ(port_.told[1].sources, port_.told[0].sources);
}

TEST_F(ShardLoopTest, ABatchIsToldOnceWhenItIsApplied) {
  FromLedger(codec::Unreserve{.step = StepId(1)});
  FromLedger(OneGroupForStep(2));
  FromLedger(codec::Unreserve{.step = StepId(2)});
  CommitAll();
  EXPECT_EQ(Reserved(), 0u);
  ASSERT_EQ(port_.told.size(), 2u);
  EXPECT_EQ(ReadyGroups(), 2u);
}

TEST_F(ShardLoopTest, WhatMovesNoReadyGroupIsNotTold) {
  FromLedger(codec::Unreserve{.step = StepId(9)});
  FromLedger(codec::StepReplanned{.step = StepId(1), .revision = Revision(2)});
  CommitAll();
  EXPECT_EQ(port_.told.size(), 1u);
}

}  // namespace
}  // namespace forebay::node
