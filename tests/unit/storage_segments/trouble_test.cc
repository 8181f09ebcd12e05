// Faults of the disk: what is acknowledged stays right, what is not waits, and it recovers by
// itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

using io::Fault;
using io::MemoryOperation;
using testing::HasSubstr;

SegmentStoreOptions Small() {
  SegmentStoreOptions options;
  options.bytes_max = 1'000'000;
  options.completion_reserve_bytes = 0;
  options.segment_bytes = 400'000;
  options.write_bytes_max = 32 << 10;
  options.read_bytes_max = 64 << 10;
  options.lanes = 2;
  options.gc_grace_ms = 1'000;
  options.write_deadline_ms = 500;
  options.retry_least_ms = 20;
  options.retry_most_ms = 200;
  return options;
}

class Trouble : public testing::Test {
 protected:
  Trouble() { host.Recover(); }

  std::string Text(size_t size) { return RandomText(prng, size); }
  std::string FileOf(PayloadId id) const {
    return FileNameOf({.node = host.options.node, .number = PlaceOf(id).segment});
  }
  void EvictAll() {
    host.store->budget().SetLimits(0, 0);
    host.store->budget().SetLimits(host.options.bytes_max, 0);
    ASSERT_EQ(host.store->use().budget.used_bytes, 0u);
  }

  Prng prng{1};
  Host host{Small()};
};

class FailedOperation : public Trouble, public testing::WithParamInterface<MemoryOperation> {};

TEST_P(FailedOperation, PutsWhatItHadIntoANewSegmentAndLeavesTheOldOneReadable) {
  const MemoryOperation operation = GetParam();
  const bool first = operation == MemoryOperation::kOpen ||
                     operation == MemoryOperation::kSyncDirectory;  // happen once a segment
  PutRef before;
  if (!first) before = host.Write(Text(5'000));
  host.disk->Inject({.operation = operation, .error = EIO});
  const PutRef put = StartPut(*host.store, Text(5'000));
  for (int ms = 0; ms < 50 && host.store->trouble().kind.empty(); ++ms) host.Advance(1);
  EXPECT_FALSE(put->answer.has_value());
  const StoreTrouble trouble = host.store->trouble();
  EXPECT_EQ(trouble.kind, "failing");
  EXPECT_THAT(trouble.what, HasSubstr("EIO"));
  EXPECT_THAT(trouble.path, HasSubstr(".seg"));
  EXPECT_EQ(trouble.waiting_bytes, 5'000u);
  host.Advance(100);
  ASSERT_TRUE(put->ok());
  EXPECT_EQ(host.store->trouble().kind, "");
  EXPECT_EQ(host.store->store_use().failed_writes, 1u);
  EvictAll();
  EXPECT_EQ(host.Read(put->id), put->bytes);
  if (first) return;
  EXPECT_NE(PlaceOf(put->id).segment, PlaceOf(before->id).segment);
  EXPECT_EQ(host.Read(before->id), before->bytes);
  // Nothing is written behind what may be lost.
  const PutRef after = host.Write(Text(100));
  EXPECT_NE(PlaceOf(after->id).segment, PlaceOf(before->id).segment);
}

INSTANTIATE_TEST_SUITE_P(All, FailedOperation,
                         testing::Values(MemoryOperation::kWrite, MemoryOperation::kSync,
                                         MemoryOperation::kOpen, MemoryOperation::kSyncDirectory));

TEST_F(Trouble, AFailedSyncIsNotTriedAgain) {
  const PutRef before = host.Write(Text(5'000));
  const uint64_t syncs = host.disk->use().syncs;
  host.disk->Inject(
      {.operation = MemoryOperation::kSync, .path = FileOf(before->id), .times = UINT64_MAX});
  const PutRef put = StartPut(*host.store, Text(5'000));
  host.Advance(1'000);
  EXPECT_TRUE(put->ok());
  // One failed, and the new segment's.
  EXPECT_EQ(host.disk->use().syncs - syncs, 2u);
}

TEST_F(Trouble, WhileTheDiskIsFullPutsWaitAndItGoesOnWhenThereIsRoom) {
  const PutRef before = host.Write(Text(5'000));
  host.volume->bytes_max = host.volume->used_bytes() + 40'000;
  std::vector<PutRef> puts;
  while (PutRef put = StartPut(*host.store, Text(20'000))) puts.push_back(put);
  EXPECT_GT(puts.size(), 40u);
  host.Advance(20'000);
  const StoreTrouble trouble = host.store->trouble();
  EXPECT_EQ(trouble.kind, "full");
  EXPECT_THAT(trouble.what, HasSubstr("ENOSPC"));
  EXPECT_GT(trouble.waiting_bytes, 40u * 20'000 - 60'000);
  EXPECT_LE(host.store->use().budget.used_bytes, host.options.bytes_max);
  // What failed leaves nothing behind, and is tried with pauses.
  EXPECT_LE(host.Files().size(), 5u);
  EXPECT_LE(host.store->store_use().failed_writes, 20'000 / host.options.retry_most_ms + 20);
  EXPECT_EQ(host.Read(before->id), before->bytes);

  host.volume->bytes_max = uint64_t{1} << 40;
  host.Advance(host.options.retry_most_ms + 2'000);
  for (const PutRef& put : puts) ASSERT_TRUE(put->ok());
  EXPECT_EQ(host.store->trouble().kind, "");
  EXPECT_EQ(host.store->trouble().waiting_bytes, 0u);
  for (const PutRef& put : puts) EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST_F(Trouble, ItLeavesTheReserveFreeAndGoesOnWhenThereIsRoom) {
  SegmentStoreOptions options = Small();
  options.reserve_bytes = 200'000;
  options.space_look_ms = 50;
  options.gc_grace_ms = 60'000;
  options.gc_grace_when_full_ms = 100;
  options.segment_bytes = 50'000;
  Host full(options);
  full.volume->bytes_max = 3'000'000;
  full.Recover();
  full.Advance(100);
  std::vector<PutRef> puts;
  uint64_t answered = 0;
  for (int i = 0; i < 300; ++i) {
    if (PutRef put = StartPut(*full.store, Text(20'000))) puts.push_back(put);
    full.Advance(20);
    // Between two looks it knows by itself what it took.
    ASSERT_LE(full.volume->used_bytes(), full.volume->bytes_max - 200'000 + 100'000);
    answered =
        static_cast<uint64_t>(std::ranges::count_if(puts, [](auto& put) { return put->ok(); }));
    full.store->budget().SetLimits(0, 0);  // room in memory for the next ones
    full.store->budget().SetLimits(options.bytes_max, 0);
  }
  EXPECT_LT(answered, puts.size());
  EXPECT_TRUE(full.store->full());
  EXPECT_EQ(full.store->trouble().kind, "full");
  EXPECT_THAT(full.store->trouble().what, HasSubstr("storage.reserve_bytes"));
  EXPECT_GT(full.store->trouble().waiting_bytes, 0u);
  EXPECT_EQ(full.store->store_use().failed_writes, 0u);
  // Files that nobody needs go sooner than they would.
  std::vector<PayloadId> first;
  for (uint64_t i = 0; i < answered / 2; ++i) first.push_back(puts[i]->id);
  full.store->Free(first);
  full.Advance(2'000);
  for (const PutRef& put : puts) ASSERT_TRUE(put->ok());
  EXPECT_FALSE(full.store->full());
  EXPECT_EQ(full.store->trouble().kind, "");
}

TEST_F(Trouble, TheReserveIsAtMostATenthOfTheDisk) {
  SegmentStoreOptions options = Small();
  options.reserve_bytes = uint64_t{1} << 30;
  Host small(options);
  small.volume->bytes_max = 3'000'000;
  small.Recover();
  const PutRef put = small.Write(Text(20'000));
  EXPECT_FALSE(small.store->full());
  small.volume->bytes_max = 100'000;
  small.Advance(1'100);
  EXPECT_FALSE(small.store->full());
  small.volume->bytes_max = small.volume->used_bytes() + 1'000;
  small.Advance(1'100);
  EXPECT_TRUE(small.store->full());
  EXPECT_EQ(small.Read(put->id), put->bytes);
}

TEST_F(Trouble, AQuotaIsAsGoodAsAFullDisk) {
  host.disk->Inject({.operation = MemoryOperation::kWrite, .times = UINT64_MAX, .error = EDQUOT});
  const PutRef put = StartPut(*host.store, Text(5'000));
  host.Advance(1'000);
  EXPECT_EQ(host.store->trouble().kind, "full");
  host.disk->Heal();
  host.Advance(1'000);
  EXPECT_TRUE(put->ok());
}

TEST_F(Trouble, WhileNothingEndsItWaits) {
  host.Write(Text(5'000));
  host.disk->Hang();
  std::vector<PutRef> puts;
  while (PutRef put = StartPut(*host.store, Text(20'000))) puts.push_back(put);
  host.Advance(10'000);
  EXPECT_EQ(host.store->trouble().kind, "hung");
  EXPECT_EQ(host.store->store_use().abandoned_writes, 0u);
  EXPECT_LE(host.store->use().budget.used_bytes, host.options.bytes_max);
  EXPECT_LE(host.store->store_use().buffer_bytes, 2 * host.options.write_bytes_max);
  host.disk->Heal();
  host.Advance(3'000);
  for (const PutRef& put : puts) ASSERT_TRUE(put->ok());
  EXPECT_EQ(host.store->trouble().kind, "");
  for (const PutRef& put : puts) EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST_F(Trouble, ALateWriteIsDoneAgainElsewhereIfElsewhereGoesOn) {
  const PutRef before = host.Write(Text(5'000));
  host.disk->Inject({.what = Fault::What::kHang,
                     .operation = MemoryOperation::kWrite,
                     .path = FileOf(before->id)});
  const PutRef late = StartPut(*host.store, Text(5'000));
  host.Advance(host.options.write_deadline_ms * 3);
  EXPECT_FALSE(late->answer.has_value());  // nothing else goes on that would show it
  EXPECT_EQ(host.store->trouble().kind, "hung");
  const PutRef other = StartPut(*host.store, Text(5'000));
  host.Advance(200);
  EXPECT_TRUE(other->ok());
  ASSERT_TRUE(late->ok());
  EXPECT_NE(PlaceOf(late->id).segment, PlaceOf(before->id).segment);
  EXPECT_EQ(host.store->trouble().kind, "slow");
  EXPECT_EQ(host.store->store_use().abandoned_writes, 1u);
  // Its buffer is the disk's until it ends.
  EXPECT_EQ(host.store->store_use().buffer_bytes, host.options.write_bytes_max);
  host.disk->Heal();
  host.Settle();
  EXPECT_EQ(host.store->store_use().buffer_bytes, 0u);
  EXPECT_EQ(host.store->trouble().kind, "");
  EvictAll();
  EXPECT_EQ(host.Read(before->id), before->bytes);
  EXPECT_EQ(host.Read(late->id), late->bytes);
}

TEST_F(Trouble, TheMemoryOfALateWriteStaysUntilItEnds) {
  const PutRef before = host.Write(Text(5'000));
  host.disk->Inject({.what = Fault::What::kHang,
                     .operation = MemoryOperation::kWrite,
                     .path = FileOf(before->id)});
  const PutRef late = StartPut(*host.store, Text(100'000));
  host.Advance(host.options.write_deadline_ms * 3);
  const PutRef other = StartPut(*host.store, Text(5'000));
  host.Advance(500);
  ASSERT_TRUE(late->ok());
  host.store->Free({before->id, late->id, other->id});
  EXPECT_EQ(host.store->use().budget.used_bytes, PayloadBuilder::Footprint(100'000));
  // Would get the same memory, and the disk would notice.
  const PutRef next = host.Write(Text(100'000));
  EXPECT_EQ(host.Read(next->id), next->bytes);
  host.disk->Heal();
  host.Settle();
  host.store->Free({next->id});
  EXPECT_EQ(host.store->use().budget.used_bytes, 0u);
}

TEST_F(Trouble, BytesThatChangeInMemoryAreFoundWhereTheyAreRead) {
  for (const size_t size : {5'000u, 100'000u}) {
    Host fresh(Small());  // nothing is written before it has recovered
    const std::string header = "h", columns = Text(size);
    ASSERT_TRUE(fresh.store->budget().TryReserve(PayloadBuilder::Footprint(1 + size)));
    PayloadBuilder builder;
    char* const bytes = builder.BeginWhole(&fresh.store->budget(), header, columns.size());
    std::copy(columns.begin(), columns.end(), bytes);
    PayloadId id;
    fresh.store->Finish({&builder, 1}, {&id, 1}, [](const absl::Status&) {});
    bytes[77] ^= 4;
    fresh.Recover();
    fresh.Settle();
    ASSERT_NE(id.value, 0u);
    fresh.store->budget().SetLimits(0, 0);
    fresh.store->budget().SetLimits(fresh.options.bytes_max, 0);
    EXPECT_EQ(fresh.Load({id})->answer->code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(fresh.store->store_use().damaged, 1u);
  }
}

TEST_F(Trouble, AFlippedBitOnTheWayIsReadAgain) {
  const PutRef put = host.Write(Text(5'000));
  EvictAll();
  host.disk->Inject({.what = Fault::What::kFlipBit, .operation = MemoryOperation::kRead});
  EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST_F(Trouble, AStoredFlippedBitIsDamageOfOnePayloadWithFileAndOffset) {
  std::vector<PutRef> puts;
  for (int i = 0; i < 5; ++i) puts.push_back(StartPut(*host.store, Text(3'000)));
  host.Settle();
  const PayloadPlace place = PlaceOf(puts[2]->id);
  for (const uint64_t at : {uint64_t{3}, uint64_t{20}, kRecordHeadBytes, uint64_t{1'500}}) {
    Host again(Small(), host.volume);
    std::vector<PayloadId> live;
    for (const PutRef& put : puts) live.push_back(put->id);
    again.Recover(live);
    const std::string path = "/data/segments/" + FileOf(puts[2]->id);
    again.disk->FlipStoredBit(path, place.offset + at, 3);
    const LoadedRef loaded = again.Load(live);
    ASSERT_TRUE(loaded->answer.has_value());
    EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(loaded->answer->message()), HasSubstr(path));
    EXPECT_THAT(std::string(loaded->answer->message()),
                HasSubstr("offset " + std::to_string(place.offset)));
    EXPECT_EQ(again.store->store_use().damaged, 1u);
    for (size_t i = 0; i < puts.size(); ++i) {
      if (i == 2) continue;
      EXPECT_EQ(again.Read(puts[i]->id), puts[i]->bytes);
    }
    again.disk->FlipStoredBit(path, place.offset + at, 3);
  }
}

TEST_F(Trouble, AReadThatFailsIsTriedAgainForAWhile) {
  const PutRef put = host.Write(Text(5'000));
  EvictAll();
  host.disk->Inject({.operation = MemoryOperation::kRead, .times = 2, .error = EIO});
  const LoadedRef loaded = StartLoad(*host.store, {put->id});
  host.Advance(15);
  EXPECT_EQ(host.store->trouble().kind, "reading");
  host.Advance(2'000);
  ASSERT_TRUE(loaded->ok());
  EXPECT_EQ(BytesOf(loaded->views[0]), put->bytes);
  EXPECT_EQ(host.store->trouble().kind, "");
  loaded->views.clear();

  EvictAll();
  host.disk->Inject({.operation = MemoryOperation::kRead, .times = UINT64_MAX, .error = EIO});
  const LoadedRef failed = StartLoad(*host.store, {put->id});
  host.Advance(host.options.read_patience_ms / 2);
  EXPECT_FALSE(failed->answer.has_value());
  host.Advance(host.options.read_patience_ms / 2 + 1'000);
  ASSERT_TRUE(failed->answer.has_value());
  EXPECT_EQ(failed->answer->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(io::ErrorOf(*failed->answer), EIO);
  EXPECT_EQ(host.store->use().budget.used_bytes, 0u);
  host.disk->Heal();
  EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST_F(Trouble, APlaceThatFailsInAFileThatCanBeReadIsDamageInTheEnd) {
  const PutRef put = host.Write(Text(50'000));
  EvictAll();
  host.disk->Inject({.operation = MemoryOperation::kRead,
                     .from = PlaceOf(put->id).offset + 1,
                     .times = UINT64_MAX,
                     .error = EIO});
  const LoadedRef failed = StartLoad(*host.store, {put->id});
  host.Advance(host.options.read_patience_ms - 1'000);
  EXPECT_FALSE(failed->answer.has_value());
  host.Advance(2'000);
  ASSERT_TRUE(failed->answer.has_value());
  EXPECT_EQ(failed->answer->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(LostOf(*failed->answer), std::vector<PayloadId>{put->id});
  EXPECT_EQ(host.store->store_use().damaged, 1u);
  EXPECT_EQ(host.store->use().budget.used_bytes, 0u);
}

TEST_F(Trouble, AFileThatVanishedIsDamage) {
  const PutRef put = host.Write(Text(5'000));
  host.store = nullptr;
  Host again(Small(), host.volume);
  again.Recover({put->id});
  again.disk->Unlink("/data/segments/" + FileOf(put->id), [](const absl::Status&) {});
  const LoadedRef loaded = StartLoad(*again.store, {put->id});
  again.Advance(5'000);
  ASSERT_TRUE(loaded->answer.has_value());
  EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(loaded->answer->message()), HasSubstr("ENOENT"));
}

TEST_F(Trouble, RecoveryThatFailsLosesNothingAndMayBeRepeated) {
  const PutRef put = host.Write(Text(5'000));
  host.store = nullptr;
  for (const MemoryOperation operation : {MemoryOperation::kMakeDirectory, MemoryOperation::kList,
                                          MemoryOperation::kOpen, MemoryOperation::kRead}) {
    Host again(Small(), host.volume);
    again.disk->Inject({.operation = operation, .error = EIO});
    const auto failed = again.StartRecovery({put->id});
    ASSERT_TRUE(failed.has_value());
    EXPECT_EQ(io::ErrorOf(failed->status()), EIO);
    EXPECT_EQ(again.Recover({put->id}).payloads, 1u);
    EXPECT_EQ(again.Read(put->id), put->bytes);
  }
}

TEST_F(Trouble, UnlinksAgainWhatCouldNotBeUnlinked) {
  const PutRef put = host.Write(Text(450'000));
  host.Write(Text(450'000));
  host.Settle();
  host.store->Free({put->id});
  host.disk->Inject({.operation = MemoryOperation::kUnlink, .error = EIO});
  host.Advance(host.options.gc_grace_ms + 200);
  EXPECT_EQ(host.Files().size(), 2u);
  host.Advance(host.options.gc_grace_ms + 200);
  EXPECT_EQ(host.Files().size(), 1u);
}

TEST_F(Trouble, AStoreThatEndsAnswersWhatWaits) {
  const PutRef put = host.Write(Text(5'000));
  EvictAll();
  host.disk->Hang();
  std::vector<PutRef> puts;
  for (int i = 0; i < 10; ++i) puts.push_back(StartPut(*host.store, Text(20'000)));
  const LoadedRef loaded = StartLoad(*host.store, {put->id});
  host.store = nullptr;
  ASSERT_TRUE(loaded->answer.has_value());
  EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kUnavailable);
  host.disk->Heal();
  host.time.RunAll();
  for (const PutRef& each : puts) EXPECT_TRUE(each->answer.has_value());
}

}  // namespace
}  // namespace forebay::storage
