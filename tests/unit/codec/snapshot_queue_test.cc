#include "codec/snapshot_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>

#include "base/prng.h"

namespace forebay::codec {
namespace {

struct Item {
  uint32_t value = 0;
  template <class A>
  void Fields(A& a) {
    a(value);
  }
};
using Queue = SnapshotQueue<Item, 8>;

std::string Encoded(const std::deque<uint32_t>& items) {
  std::string bytes;
  Writer writer(&bytes);
  writer(items);
  return bytes;
}

std::string AllOf(Parts& parts) {
  std::string bytes;
  while (Piece piece = parts.Next()) piece(&bytes);
  return bytes;
}

TEST(SnapshotQueue, IsWrittenAsADequeIs) {
  Queue queue;
  std::deque<uint32_t> twin;
  for (uint32_t i = 0; i < 100; ++i) {
    std::string bytes;
    Writer writer(&bytes);
    queue.Snapshot(writer);
    EXPECT_EQ(bytes, Encoded(twin));
    Queue restored;
    Reader reader(bytes);
    ASSERT_TRUE(restored.Restore(reader, 100) && reader.Done());
    ASSERT_EQ(restored.size(), queue.size());
    for (size_t k = 0; k < twin.size(); ++k) EXPECT_EQ(restored[k].value, twin[k]);
    queue.PushBack({i});
    twin.push_back(i);
  }
}

TEST(SnapshotQueue, RestoresNoMoreThanIsAllowedAndNothingThatIsCutOff) {
  const std::string bytes = Encoded({1, 2, 3});
  Queue queue;
  Reader most(bytes);
  EXPECT_FALSE(queue.Restore(most, 2));
  Reader cut(std::string_view(bytes).substr(0, bytes.size() - 1));
  EXPECT_FALSE(queue.Restore(cut, 3));
}

// Snapshots of any moment are encoded at any later one, while the queue goes on.
TEST(SnapshotQueue, SnapshotsShowTheirMomentOverRandomHistories) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Prng prng(seed);
    Queue queue;
    std::deque<uint32_t> twin;
    struct Held {
      std::unique_ptr<Parts> parts;
      std::string expected;
    };
    std::deque<Held> held;
    for (uint32_t i = 0; i < 400; ++i) {
      const uint64_t choice = prng.Below(20);
      if (choice < 10) {
        queue.PushBack({i});
        twin.push_back(i);
      } else if (choice < 14 && !twin.empty()) {
        queue.PopFront();
        twin.pop_front();
      } else if (choice < 18 && !twin.empty()) {
        queue.PopBack();
        twin.pop_back();
      } else if (choice == 18) {
        Held& taken = held.emplace_back();
        taken.parts = std::make_unique<Parts>();
        queue.Snapshot(taken.parts->writer());
        taken.expected = Encoded(twin);
      } else if (choice == 19 && !held.empty()) {
        ASSERT_EQ(AllOf(*held.front().parts), held.front().expected);
        held.pop_front();
      }
      ASSERT_EQ(queue.size(), twin.size());
      ASSERT_EQ(queue.empty(), twin.empty());
      if (twin.empty()) continue;
      ASSERT_EQ(queue.back().value, twin.back());
      const size_t at = prng.Below(twin.size());
      ASSERT_EQ(queue[at].value, twin[at]);
    }
    for (Held& taken : held) ASSERT_EQ(AllOf(*taken.parts), taken.expected);
  }
}

}  // namespace
}  // namespace forebay::codec
