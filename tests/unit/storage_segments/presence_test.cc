// Files that somebody took away: what is named, what is not written any more, and what counts as
// lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

using io::Fault;
using io::MemoryOperation;
using testing::HasSubstr;

SegmentStoreOptions OneLane() {
  SegmentStoreOptions options;
  options.bytes_max = 1'000'000;
  options.completion_reserve_bytes = 0;
  options.lanes = 1;
  options.write_bytes_max = 32 << 10;
  options.retry_least_ms = 20;
  options.retry_most_ms = 200;
  options.gc_grace_ms = 0;
  options.presence_ms = 1'000;
  options.read_patience_ms = 10'000;
  return options;
}

class Presence : public testing::Test {
 protected:
  Presence() { host.Recover(); }

  std::string Text(size_t size) { return RandomText(prng, size); }
  std::string PathOf(PayloadId id) const {
    return "/data/segments/" +
           FileNameOf({.node = host.options.node, .number = PlaceOf(id).segment});
  }
  // As another host would.
  void Remove(const std::string& path) {
    stranger.Unlink(path, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    host.time.Advance(20);
  }
  void Move(const std::string& from, const std::string& to) {
    stranger.Rename(from, to,
                    [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    host.time.Advance(20);
  }
  void Look() { host.Advance(host.options.presence_ms + 50); }
  void EvictAll() {
    host.store->budget().SetLimits(0, 0);
    host.store->budget().SetLimits(host.options.bytes_max, 0);
  }

  Prng prng{1};
  Host host{OneLane()};
  io::MemoryDisk stranger{host.volume, host.time.time(), {.host = 1}};
};

TEST_F(Presence, AFileThatIsGoneIsNamedUntilNothingInItIsLive) {
  const PutRef first = host.Write(Text(5'000)), second = host.Write(Text(5'000));
  Look();
  EXPECT_EQ(host.store->trouble().kind, "");
  Remove(PathOf(first->id));
  Look();
  const StoreTrouble trouble = host.store->trouble();
  EXPECT_EQ(trouble.kind, "incomplete");
  EXPECT_THAT(trouble.what, HasSubstr("1 file is gone, with 2 rollouts"));
  EXPECT_EQ(trouble.path, PathOf(first->id));
  EXPECT_LE(trouble.since_ms, host.time.now_ms());
  EXPECT_EQ(host.store->store_use().segments_gone, 1u);
  host.store->Free({first->id});
  EXPECT_THAT(host.store->trouble().what, HasSubstr("with 1 rollouts"));
  host.store->Free({second->id});
  EXPECT_EQ(host.store->trouble().kind, "");
  Look();
  EXPECT_EQ(host.store->store_use().segments_gone, 0u);
}

TEST_F(Presence, NothingMoreIsWrittenToAFileThatIsGone) {
  const PutRef before = host.Write(Text(5'000));
  Remove(PathOf(before->id));
  Look();
  const PutRef after = host.Write(Text(5'000));
  EXPECT_NE(PlaceOf(after->id).segment, PlaceOf(before->id).segment);
  Host again(OneLane(), host.volume);
  EXPECT_EQ(again.Recover({after->id}).lost.size(), 0u);
  EXPECT_EQ(again.Read(after->id), after->bytes);
}

TEST_F(Presence, WhatIsBeingWrittenToAFileThatIsGoneIsNotAcknowledgedThere) {
  const PutRef before = host.Write(Text(5'000));
  host.disk->Inject({.what = Fault::What::kDelay,
                     .operation = MemoryOperation::kSync,
                     .delay_ms = 2 * host.options.presence_ms});
  const PutRef late = StartPut(*host.store, Text(5'000));
  host.Advance(50);
  Remove(PathOf(before->id));
  host.Advance(4 * host.options.presence_ms);
  ASSERT_TRUE(late->ok());
  EXPECT_NE(PlaceOf(late->id).segment, PlaceOf(before->id).segment);
  EXPECT_EQ(host.store->store_use().failed_writes, 1u);
}

TEST_F(Presence, AFileThatIsBackIsNoTrouble) {
  const PutRef put = host.Write(Text(5'000));
  Move(PathOf(put->id), "/data/elsewhere");
  Look();
  EXPECT_EQ(host.store->trouble().kind, "incomplete");
  Move("/data/elsewhere", PathOf(put->id));
  Look();
  EXPECT_EQ(host.store->trouble().kind, "");
  EvictAll();
  EXPECT_EQ(host.Read(put->id), put->bytes);
}

// What does not say that a file is missing, is not taken so.
TEST_F(Presence, AListThatFailsSaysNothing) {
  const PutRef put = host.Write(Text(5'000));
  host.disk->Inject({.operation = MemoryOperation::kList, .times = UINT64_MAX, .error = EIO});
  Look();
  EXPECT_EQ(host.store->trouble().kind, "");
  const PutRef after = host.Write(Text(5'000));
  EXPECT_EQ(PlaceOf(after->id).segment, PlaceOf(put->id).segment);
}

class FolderGone : public Presence, public testing::WithParamInterface<int> {};

// As of a server that came back without its file system, or where nothing is mounted any more.
TEST_P(FolderGone, NothingCountsAsLostAndReadsWaitUntilItIsBack) {
  const PutRef put = host.Write(Text(5'000));
  host.store = nullptr;
  Host again(OneLane(), host.volume);
  again.Recover({put->id});
  for (const auto operation : {MemoryOperation::kList, MemoryOperation::kOpen}) {
    again.disk->Inject({.operation = operation, .times = UINT64_MAX, .error = GetParam()});
  }
  const LoadedRef loaded = StartLoad(*again.store, {put->id});
  again.Advance(5'000);
  EXPECT_FALSE(loaded->answer.has_value());
  const StoreTrouble trouble = again.store->trouble();
  EXPECT_EQ(trouble.kind, "incomplete");
  EXPECT_EQ(trouble.path, "/data/segments");
  again.disk->Heal();
  again.Advance(2'000);
  ASSERT_TRUE(loaded->ok());
  EXPECT_EQ(BytesOf(loaded->views[0]), put->bytes);
  EXPECT_EQ(again.store->trouble().kind, "");
}

INSTANTIATE_TEST_SUITE_P(All, FolderGone, testing::Values(ENOENT, ENOTDIR, ESTALE));

TEST_F(Presence, AStaleFileIsLostOnlyIfTheFolderDoesNotHaveIt) {
  const PutRef put = host.Write(Text(5'000));
  host.store = nullptr;
  Host again(OneLane(), host.volume);
  again.Recover({put->id});
  again.disk->Inject({.operation = MemoryOperation::kOpen, .times = UINT64_MAX, .error = ESTALE});
  const LoadedRef stale = StartLoad(*again.store, {put->id});
  again.Advance(2 * again.options.read_patience_ms);
  ASSERT_TRUE(stale->answer.has_value());
  EXPECT_EQ(stale->answer->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(io::ErrorOf(*stale->answer), ESTALE);
  EXPECT_EQ(again.store->store_use().damaged, 0u);
  Remove(PathOf(put->id));
  const LoadedRef lost = StartLoad(*again.store, {put->id});
  again.Advance(1'000);
  ASSERT_TRUE(lost->answer.has_value());
  EXPECT_EQ(lost->answer->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(again.store->store_use().damaged, 1u);
}

TEST_F(Presence, AStoreThatEndsWhileItLooksIsNotMissed) {
  host.Write(Text(5'000));
  host.disk->Inject({.what = Fault::What::kHang, .operation = MemoryOperation::kList});
  Look();
  host.store = nullptr;
  host.disk->Heal();
  host.time.RunAll();
  EXPECT_EQ(host.disk->use().in_flight, 0u);
}

}  // namespace
}  // namespace forebay::storage
