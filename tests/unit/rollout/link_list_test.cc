#include "rollout/link_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"

namespace forebay::rollout {
namespace {

struct Record {
  uint32_t slot_state = 0;
  uint32_t link = kNone;
  Link order;
};
using List = LinkList<Record, &Record::order>;

std::vector<uint32_t> Slots(const List& list, const SlotTable<Record>& table) {
  std::vector<uint32_t> slots;
  EXPECT_TRUE(list.Walk(table, [&](uint32_t slot) {
    slots.push_back(slot);
    return true;
  }));
  return slots;
}

TEST(LinkList, AgreesWithAVector) {
  SlotTable<Record> table;
  for (int i = 0; i < 30; ++i) table.Add();
  Prng prng(5);
  List list;
  std::vector<uint32_t> model;
  for (int i = 0; i < 2000; ++i) {
    const uint32_t slot = static_cast<uint32_t>(prng.Below(30));
    const auto at = std::find(model.begin(), model.end(), slot);
    if (at != model.end()) {
      list.Remove(table, slot);
      model.erase(at);
    } else if (model.empty() || prng.Below(2) == 0) {
      list.PushBack(table, slot);
      model.push_back(slot);
    } else {
      const size_t position = prng.Below(model.size());
      list.InsertBefore(table, slot, model[position]);
      model.insert(model.begin() + static_cast<ptrdiff_t>(position), slot);
    }
    ASSERT_EQ(Slots(list, table), model);
    ASSERT_EQ(list.size(), model.size());
  }
}

TEST(LinkList, AWalkNoticesBrokenLinks) {
  SlotTable<Record> table;
  List list;
  for (int i = 0; i < 4; ++i) list.PushBack(table, table.Add());
  const auto holds = [&] { return list.Walk(table, [](uint32_t) { return true; }); };
  ASSERT_TRUE(holds());
  table[1].order.next = 0;
  EXPECT_FALSE(holds());
  table[1].order.next = 77;
  EXPECT_FALSE(holds());
  table[1].order.next = kNone;
  EXPECT_FALSE(holds());
  table[1].order.next = 2;
  EXPECT_TRUE(holds());
  table.Remove(3);
  EXPECT_FALSE(holds());
}

}  // namespace
}  // namespace forebay::rollout
