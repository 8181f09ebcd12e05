#include "rollout/slot_table.h"

#include <gtest/gtest.h>

#include <string>

#include "codec/archive.h"

namespace forebay::rollout {
namespace {

struct Record {
  uint32_t slot_state = 0;
  uint32_t link = kNone;
  uint64_t value = 0;
  template <class A>
  void Fields(A& a) {
    a(slot_state, link, value);
  }
};
using Table = SlotTable<Record>;

AttemptId IdOf(const Table& table, uint32_t slot) {
  return AttemptId::Make(ShardId(1), table.Generation(slot), slot);
}

TEST(SlotTable, AReusedSlotIsNotFoundByItsOldId) {
  Table table;
  const uint32_t slot = table.Add();
  table[slot].value = 9;
  const AttemptId old = IdOf(table, slot);
  EXPECT_EQ(table.Find(ShardId(1), old), slot);
  EXPECT_EQ(table.Find(ShardId(2), old), kNone);
  table.Remove(slot);
  EXPECT_EQ(table.Find(ShardId(1), old), kNone);
  EXPECT_EQ(table.Add(), slot);
  EXPECT_EQ(table[slot].value, 0u);
  EXPECT_EQ(table.Find(ShardId(1), old), kNone);
  EXPECT_EQ(table.Find(ShardId(1), IdOf(table, slot)), slot);
}

TEST(SlotTable, NoIdIsZero) {
  Table table;
  const uint32_t slot = table.Add();
  ASSERT_EQ(slot, 0u);
  EXPECT_NE(AttemptId::Make(ShardId(0), table.Generation(slot), slot), AttemptId());
  // Not even when generations begin anew.
  table[slot].slot_state = AttemptId::kGenerationMask << 1 | 1;
  table.Remove(slot);
  ASSERT_EQ(table.Add(), slot);
  EXPECT_NE(AttemptId::Make(ShardId(0), table.Generation(slot), slot), AttemptId());
}

TEST(SlotTable, RecordsStayWhereTheyAreWhenItGrows) {
  Table table;
  const Record* first = &table[table.Add()];
  for (uint32_t i = 1; i < 3 * Table::kChunk; ++i) EXPECT_EQ(table.Add(), i);
  EXPECT_EQ(&table[0], first);
  EXPECT_EQ(table.used(), 3 * Table::kChunk);
}

TEST(SlotTable, ARestoredTableHandsOutTheSameSlots) {
  Table table;
  for (int i = 0; i < 10; ++i) table[table.Add()].value = i;
  for (uint32_t slot : {3u, 7u, 1u}) table.Remove(slot);
  std::string bytes;
  codec::Writer writer(&bytes);
  table.Snapshot(writer);
  Table copy;
  codec::Reader reader(bytes);
  ASSERT_TRUE(copy.Restore(reader));
  EXPECT_EQ(copy.used(), 7u);
  EXPECT_EQ(copy[4].value, 4u);
  for (int i = 0; i < 5; ++i) {
    const uint32_t slot = table.Add();
    EXPECT_EQ(copy.Add(), slot);
    EXPECT_EQ(copy.Generation(slot), table.Generation(slot));
  }
}

TEST(SlotTable, ABrokenFreeListIsRefused) {
  Table table;
  for (int i = 0; i < 4; ++i) table.Add();
  table.Remove(1);
  table.Remove(2);
  for (uint32_t bad : {2u, 3u, 99u, kNone}) {
    Table broken;
    for (int i = 0; i < 4; ++i) broken.Add();
    broken.Remove(1);
    broken.Remove(2);
    broken[2].link = bad;
    std::string bytes;
    codec::Writer writer(&bytes);
    broken.Snapshot(writer);
    codec::Reader reader(bytes);
    Table copy;
    EXPECT_FALSE(copy.Restore(reader)) << bad;
  }
}

}  // namespace
}  // namespace forebay::rollout
