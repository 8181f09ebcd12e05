#include "base/ids.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

namespace forebay {
namespace {

static_assert(!std::is_convertible_v<uint64_t, StepId>, "a bare number is no id");
static_assert(!std::is_convertible_v<StepId, Generation>, "ids of two kinds do not mix");
static_assert(!std::is_convertible_v<GroupId, AttemptId>, "slots of two tables do not mix");

TEST(SlotId, KeepsItsThreePartsAtTheirEnds) {
  for (const uint8_t shard : {0, 1, 127, 255}) {
    for (const uint32_t generation : {0u, 1u, 0x7fffffu, 0xffffffu}) {
      for (const uint32_t slot : {0u, 1u, 0x80000000u, 0xffffffffu}) {
        const auto id = RolloutId::Make(ShardId(shard), generation, slot);
        EXPECT_EQ(id.shard(), ShardId(shard));
        EXPECT_EQ(id.generation(), generation);
        EXPECT_EQ(id.slot(), slot);
      }
    }
  }
}

TEST(SlotId, WrapsTheGenerationInsteadOfSpillingIntoTheShard) {
  const auto id = GroupId::Make(ShardId(3), GroupId::kGenerationMask + 1, 7);
  EXPECT_EQ(id.shard(), ShardId(3));
  EXPECT_EQ(id.generation(), 0u);
  EXPECT_EQ(id.slot(), 7u);
}

TEST(SlotId, DiffersWhenTheSlotIsReused) {
  EXPECT_NE(AttemptId::Make(ShardId(0), 1, 5), AttemptId::Make(ShardId(0), 2, 5));
}

TEST(TaskId, KeepsSourceAndIndexAtTheirEnds) {
  for (const uint16_t source : {0, 1, 65535}) {
    for (const uint32_t index : {0u, 1u, 0xffffffffu}) {
      const auto id = TaskId::Make(SourceId(source), index);
      EXPECT_EQ(id.source(), SourceId(source));
      EXPECT_EQ(id.index(), index);
    }
  }
}

TEST(PolicyVersion, OrdersByBranchThenNumber) {
  EXPECT_LT((PolicyVersion{.branch = 0, .number = 9}), (PolicyVersion{.branch = 1, .number = 0}));
  EXPECT_LT((PolicyVersion{.branch = 1, .number = 8}), (PolicyVersion{.branch = 1, .number = 9}));
  EXPECT_EQ((PolicyVersion{.branch = 1, .number = 8}), (PolicyVersion{.branch = 1, .number = 8}));
}

}  // namespace
}  // namespace forebay
