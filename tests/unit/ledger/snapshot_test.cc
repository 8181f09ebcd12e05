#include <gtest/gtest.h>

#include "base/prng.h"
#include "tests/unit/ledger/harness.h"

namespace forebay::ledger {
namespace {

std::string SnapshotOf(const State& state) {
  std::string bytes;
  codec::Writer writer(&bytes);
  state.Snapshot(writer);
  return bytes;
}

bool Restore(State& state, const std::string& bytes) {
  codec::Reader reader(bytes);
  return state.Restore(reader) && reader.Done();
}

// A history that passes through every kind of state: sealed, open with a request on its way,
// written columns, adoptions.
void Live(Harness& h) {
  h.PutTrainSource();
  h.Attach();
  FOREBAY_CHECK(h.OpenFilled(1, h.Spec(2)).ok());
  FOREBAY_CHECK(h.Commit(1).status.ok());
  Announcement announcement;
  announcement.version = {0, 1};
  announcement.where = "w";
  FOREBAY_CHECK(h.Run(PublishVersion{h.generation, announcement}).ok());
  FOREBAY_CHECK(h.Run(ReportAdoption{"e", {0, 1}, 5, 6}).ok());
  FOREBAY_CHECK(h.OpenFilled(2, h.Spec(2)).ok());
  const uint64_t tokens = h.state.ViewMicroBatch(StepId(2), Revision(1), {})->tokens;
  const WrittenColumn column{"values", 11, {}, PayloadId(5), tokens * 4};
  FOREBAY_CHECK(h.Run(PutColumns{h.generation, StepId(2), Revision(1), {}, {column}}).ok());
  FOREBAY_CHECK(h.Run(OpenStep{h.generation, StepId(3), h.Spec(3)}).ok());
  h.shards[0].AddReady({});
  h.Summarize();
  h.paused = true;
  h.shards[1].AddReady({});
  h.Summarize();
  FOREBAY_CHECK(h.step(3).requests.size() == 1 && h.step(3).groups.size() == 1);
}

TEST(Snapshot, RestoresAStateThatBehavesTheSame) {
  Harness h({.shards = 2});
  Live(h);
  State copy(h.state.options());
  ASSERT_TRUE(Restore(copy, SnapshotOf(h.state)));
  EXPECT_EQ(copy.Hash(), h.state.Hash());
  EXPECT_EQ(copy.step(StepId(2))->plan_hash, h.step(2).plan_hash);
  h.log.clear();
  h.paused = false;
  h.Deliver();
  h.shards[0].AddReady({});
  h.Summarize();
  ASSERT_TRUE(h.Commit(2).status.ok());
  ASSERT_TRUE(h.Commit(3).status.ok());
  Effects effects;
  for (const Command& command : h.log) copy.Apply(command, 0, &effects);
  EXPECT_EQ(copy.Hash(), h.state.Hash());
  copy.CheckInvariants();
}

TEST(Snapshot, OfAnotherRunOrOtherShardsIsRefused) {
  Harness h({.run_seed = 1, .shards = 2});
  State other_run({.run_seed = 2, .shards = 2}), other_shards({.run_seed = 1, .shards = 3});
  EXPECT_FALSE(Restore(other_run, SnapshotOf(h.state)));
  EXPECT_FALSE(Restore(other_shards, SnapshotOf(h.state)));
}

TEST(Snapshot, CutShortIsRefused) {
  Harness h({.shards = 2});
  Live(h);
  const std::string bytes = SnapshotOf(h.state);
  for (size_t size = 0; size < bytes.size(); size += 7) {
    State copy(h.state.options());
    EXPECT_FALSE(Restore(copy, bytes.substr(0, size)));
  }
}

// What it takes for whole must be safe to ask.
TEST(Snapshot, WithFlippedBitsIsRefusedOrSafeToRead) {
  Harness h({.shards = 2});
  Live(h);
  const std::string bytes = SnapshotOf(h.state);
  Prng prng(1);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string spoilt = bytes;
    spoilt[prng.Below(spoilt.size())] ^= static_cast<char>(1 << prng.Below(8));
    State copy(h.state.options());
    if (!Restore(copy, spoilt)) {
      ++refused;
      continue;
    }
    for (const Step* step : copy.StepsNewestFirst()) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const auto view = copy.ViewMicroBatch(step->step, step->revision, {rank, 0, 0});
        EXPECT_LE(view.ok() ? view->slots.size() : 0, 16);
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace forebay::ledger
