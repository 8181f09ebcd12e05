// Contents of tasks as a machine: equal commands give equal ids, and a snapshot gives all of it.
#include "node/content_machine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"
#include "codec/snapshot_parts.h"

namespace forebay::node {
namespace {

std::string SnapshotOf(const ContentMachine& machine) {
  codec::Parts parts;
  machine.Snapshot(parts.writer());
  std::string all;
  while (codec::Piece piece = parts.Next()) piece(&all);
  return all;
}

// Small items, empty ones, and some that need an arena of their own.
std::vector<std::vector<std::string>> Batches() {
  Prng prng(7);
  std::vector<std::vector<std::string>> batches;
  for (int i = 0; i < 40; ++i) {
    std::vector<std::string> items;
    for (uint64_t k = prng.Next() % 200; k > 0; --k) {
      const uint64_t dice = prng.Next() % 100;
      const size_t size = dice == 0 ? 1'500'000 : dice < 5 ? 0 : prng.Next() % 9'000;
      items.emplace_back(size, static_cast<char>('a' + prng.Next() % 26));
    }
    batches.push_back(std::move(items));
  }
  return batches;
}

TEST(ContentMachine, EqualCommandsGiveEqualIdsAndASnapshotAllItems) {
  storage::ContentStore store(UINT64_MAX), other(UINT64_MAX), restored(UINT64_MAX);
  ContentMachine machine(&store), follower(&other), fresh(&restored);
  std::vector<std::pair<PayloadId, std::string>> all;
  uint64_t position = 0;
  for (const auto& batch : Batches()) {
    const std::string command = ContentMachine::CommandOf(batch);
    ASSERT_TRUE(machine.Apply(LogPosition(++position), command));
    ASSERT_TRUE(follower.Apply(LogPosition(position), command));
    ASSERT_TRUE(machine.last().ok() && follower.last().ok());
    ASSERT_EQ(*machine.last(), *follower.last());
    for (size_t i = 0; i < batch.size(); ++i) all.emplace_back((*machine.last())[i], batch[i]);
  }
  const std::string snapshot = SnapshotOf(machine);
  // Of what is there when it is taken, whatever comes later; and over what was there before.
  codec::Parts parts;
  machine.Snapshot(parts.writer());
  ASSERT_TRUE(machine.Apply(LogPosition(++position), ContentMachine::CommandOf({"later"})));
  std::string later;
  while (codec::Piece piece = parts.Next()) piece(&later);
  EXPECT_EQ(later, snapshot);
  ASSERT_TRUE(fresh.Apply(LogPosition(1), ContentMachine::CommandOf({"of another history"})));
  ASSERT_TRUE(fresh.Restore(snapshot));
  for (const auto& [id, item] : all) {
    ASSERT_EQ(*restored.Read(id), item);
  }
  // It goes on where the other one does.
  ASSERT_TRUE(fresh.Apply(LogPosition(2), ContentMachine::CommandOf({"later"})));
  EXPECT_EQ(*fresh.last(), *machine.last());
  EXPECT_EQ(restored.use().items, store.use().items);
}

TEST(ContentMachine, RefusesWhatItCannotRead) {
  storage::ContentStore store(UINT64_MAX);
  ContentMachine machine(&store);
  EXPECT_FALSE(machine.Apply(LogPosition(1), "no list"));
  ASSERT_TRUE(machine.Apply(LogPosition(1), ContentMachine::CommandOf({"a", "bc"})));
  const std::string snapshot = SnapshotOf(machine);
  for (size_t cut = 0; cut < snapshot.size(); ++cut) {
    // The end of an item is the end of a shorter snapshot.
    const bool whole = machine.Restore(snapshot.substr(0, cut));
    EXPECT_EQ(whole, cut == 24 || cut == 24 + 13) << cut;
  }
  EXPECT_TRUE(machine.Restore(snapshot));
}

}  // namespace
}  // namespace forebay::node
