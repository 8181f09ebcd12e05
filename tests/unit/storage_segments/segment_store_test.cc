#include "storage/segment_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

SegmentStoreOptions Small() {
  SegmentStoreOptions options;
  options.bytes_max = 1'000'000;
  options.completion_reserve_bytes = 100'000;
  options.want_bytes_max = 300'000;
  options.segment_bytes = 400'000;
  options.write_bytes_max = 64 << 10;
  options.read_bytes_max = 64 << 10;
  options.lanes = 3;
  options.gc_grace_ms = 1'000;
  options.write_deadline_ms = 500;
  return options;
}

// Of all payloads in memory that nobody holds.
void EvictAll(Host& host) {
  host.store->budget().SetLimits(0, 0);
  host.store->budget().SetLimits(host.options.bytes_max, host.options.completion_reserve_bytes);
}

TEST(SegmentStore, AcknowledgesWhatIsSyncedAndReadsItFromMemoryAndDisk) {
  Host host(Small());
  host.Recover();
  Prng prng(1);
  for (const size_t size :
       {1u, 63u, 64u, 65u, 4'000u, 4'032u, 4'096u, 65'000u, 65'536u, 200'000u}) {
    const PutRef put = StartPut(*host.store, RandomText(prng, size));
    EXPECT_FALSE(put->answer.has_value());
    EXPECT_EQ(put->id.value, 0u);
    host.Settle();
    ASSERT_TRUE(put->ok());
    EXPECT_NE(put->id.value, 0u);
    EXPECT_EQ(host.Read(put->id), put->bytes);
    EXPECT_EQ(host.store->store_use().reads_back, 0u);
    std::vector<PayloadView> views;
    EXPECT_TRUE(host.store->Open({put->id}, &views).ok());
    views.clear();
    EvictAll(host);
    EXPECT_EQ(host.store->use().budget.used_bytes, 0u);
    EXPECT_EQ(host.store->Open({put->id}, &views).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(host.Read(put->id), put->bytes) << size;
    EXPECT_EQ(host.store->store_use().reads_back, 1u);
    host.store->Free({put->id});
    EXPECT_EQ(host.Load({put->id})->answer->code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(host.store->use().payloads, 0u);
    EXPECT_EQ(host.store->use().budget.used_bytes, 0u);
    host.store = std::make_unique<SegmentStore>(host.disk.get(), host.options);
    host.Recover();
  }
}

TEST(SegmentStore, ALonePayloadIsSyncedAtOnceAndThoseThatWaitTogether) {
  Host host(Small());
  host.Recover();
  Prng prng(1);
  const PutRef first = host.Write(RandomText(prng, 100));
  const uint64_t before = host.store->store_use().syncs;
  std::vector<PutRef> puts;
  for (int i = 0; i < 100; ++i) puts.push_back(StartPut(*host.store, RandomText(prng, 1'000)));
  host.Settle();
  for (const PutRef& put : puts) EXPECT_TRUE(put->ok());
  // One at once in the open segment, and the rest in what fits a write.
  EXPECT_LE(host.store->store_use().syncs - before, 4u);
  for (const PutRef& put : puts) EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST(SegmentStore, LittleWaitsForTheWriteInFlightAndMuchStartsAnother) {
  SegmentStoreOptions options = Small();
  options.lane_bytes_min = 30'000;
  Host host(options, nullptr, {.delay_least_ms = 10, .delay_most_ms = 10});
  host.Recover();
  Prng prng(1);
  host.Write(RandomText(prng, 100));
  const auto writes = [&] { return host.disk->use().in_flight; };
  const PutRef first = StartPut(*host.store, RandomText(prng, 100));
  ASSERT_EQ(writes(), 1u);
  const PutRef little = StartPut(*host.store, RandomText(prng, 20'000));
  EXPECT_EQ(writes(), 1u);
  const PutRef much = StartPut(*host.store, RandomText(prng, 20'000));
  EXPECT_EQ(writes(), 2u);  // a new segment for both
  host.Settle();
  for (const PutRef& put : {first, little, much}) EXPECT_TRUE(put->ok());
  EXPECT_EQ(PlaceOf(little->id).segment, PlaceOf(much->id).segment);
  EXPECT_NE(PlaceOf(little->id).segment, PlaceOf(first->id).segment);
}

TEST(SegmentStore, LittleDoesNotWaitLongForAWriteInFlight) {
  SegmentStoreOptions options = Small();
  options.lane_patience_ms = 50;
  Host host(options);
  host.Recover();
  Prng prng(1);
  const PutRef before = host.Write(RandomText(prng, 100));
  host.disk->Inject(
      {.what = io::Fault::What::kDelay, .operation = io::MemoryOperation::kWrite, .delay_ms = 400});
  const PutRef slow = StartPut(*host.store, RandomText(prng, 100));
  host.Advance(30);
  const PutRef next = StartPut(*host.store, RandomText(prng, 100));
  EXPECT_EQ(host.disk->use().in_flight, 1u);
  host.Advance(150);
  EXPECT_TRUE(next->ok());
  EXPECT_FALSE(slow->answer.has_value());
  host.Settle();
  EXPECT_TRUE(slow->ok());
}

TEST(SegmentStore, AfterALargeWriteTheNextOneWaitsUntilItIsFullOrAMomentHasPassed) {
  SegmentStoreOptions options = Small();
  options.lane_bytes_min = 30'000;
  options.write_bytes_max = 64 << 10;
  options.gather_ms = 5;
  Host host(options, nullptr, {.delay_least_ms = 1, .delay_most_ms = 1});
  host.Recover();
  Prng prng(1);
  const auto writes = [&] { return host.disk->use().in_flight; };
  const auto write_much = [&] {
    const PutRef much = StartPut(*host.store, RandomText(prng, 30'000));
    for (int i = 0; i < 100 && !much->ok(); ++i) host.time.Advance(1);
    ASSERT_TRUE(much->ok());
    ASSERT_EQ(writes(), 0u);
  };
  host.Write(RandomText(prng, 100));
  const PutRef alone = StartPut(*host.store, RandomText(prng, 100));
  EXPECT_EQ(writes(), 1u);  // little came before
  host.Settle();
  write_much();
  const PutRef little = StartPut(*host.store, RandomText(prng, 100));
  host.time.Advance(4);
  EXPECT_EQ(writes(), 0u);
  const PutRef with_it = StartPut(*host.store, RandomText(prng, 100));
  host.time.Advance(1);
  EXPECT_EQ(writes(), 1u);
  host.time.Advance(3);
  EXPECT_TRUE(little->ok() && with_it->ok());
  write_much();
  const PutRef full = StartPut(*host.store, RandomText(prng, 64 << 10));
  EXPECT_EQ(writes(), 1u);
  host.Settle();
  write_much();
  StartPut(*host.store, RandomText(prng, 100));
  EXPECT_EQ(writes(), 0u);
  host.store->Seal([] {});
  EXPECT_EQ(writes(), 1u);
  host.Settle();
  EXPECT_EQ(host.store->store_use().waiting_bytes, 0u);
}

TEST(SegmentStore, WritesLargePayloadsFromWhereTheyAreBetweenSmallOnes) {
  SegmentStoreOptions options = Small();
  options.bytes_max = uint64_t{64} << 20;
  options.segment_bytes = uint64_t{64} << 20;
  options.lanes = 1;
  Prng prng(1);
  for (const uint64_t write_bytes_max : {8u << 10, 64u << 10, 4u << 20}) {
    options.write_bytes_max = write_bytes_max;
    Host host(options, nullptr, {.delay_least_ms = 1, .delay_most_ms = 9, .direct = true});
    host.Recover();
    std::vector<PutRef> puts;
    for (const size_t size : {100u, 65'535u, 65'536u, 65'537u, 1u, 4'000u, 500'000u, 200'000u, 63u,
                              (4u << 20) - 1, 4u << 20, (4u << 20) + 1, (4u << 20) + 70'000, 2u}) {
      puts.push_back(StartPut(*host.store, RandomText(prng, size)));
    }
    host.Settle(20'000);
    EvictAll(host);
    for (const PutRef& put : puts) {
      ASSERT_TRUE(put->ok());
      EXPECT_EQ(host.Read(put->id), put->bytes);
      if (put->bytes.size() < Block::kPagedBytes) continue;
      EXPECT_EQ((PlaceOf(put->id).offset + kRecordHeadBytes) % kSegmentPage, 0u);
    }
    if (write_bytes_max < 1'000'000) continue;
    // Two large ones share the page between them.
    const uint64_t end = PlaceOf(puts[6]->id).offset + RecordBytes(500'000);
    EXPECT_EQ(PlaceOf(puts[7]->id).offset + kRecordHeadBytes,
              RoundUp(end + kRecordHeadBytes, kSegmentPage));
  }
}

TEST(SegmentStore, FindsItsPayloadsAgain) {
  Host host(Small());
  host.Recover();
  Prng prng(1);
  std::vector<PutRef> puts;
  std::vector<PayloadId> live;
  for (int i = 0; i < 60; ++i) {
    puts.push_back(host.Write(RandomText(prng, 1 + prng.Below(30'000))));
    live.push_back(puts.back()->id);
  }
  EXPECT_GT(host.store->store_use().segments_sealed, 0u);
  const std::vector<std::string> files = host.Files();
  host.store = nullptr;

  Host again(Small(), host.volume);
  const StoreRecovery recovery = again.Recover(live);
  EXPECT_EQ(recovery.payloads, live.size());
  EXPECT_EQ(recovery.segments, files.size());
  EXPECT_GT(recovery.unsealed, 0u);
  EXPECT_TRUE(recovery.lost.empty());
  EXPECT_EQ(again.store->use().budget.used_bytes, 0u);
  for (const PutRef& put : puts) EXPECT_EQ(again.Read(put->id), put->bytes);
  // A new segment has a number of its own.
  const PutRef more = again.Write("more");
  EXPECT_EQ(PlaceOf(more->id).segment, recovery.last_number + 1);
}

TEST(SegmentStore, UnlinksSegmentsThatAreDeadForLongEnough) {
  Host host(Small());
  host.Recover();
  Prng prng(1);
  std::vector<PayloadId> ids;
  for (int i = 0; i < 40; ++i) {
    ids.push_back(host.Write(RandomText(prng, 29'000))->id);
  }
  const size_t files = host.Files().size();
  ASSERT_GT(files, 2u);
  host.store->Free(ids);
  host.Advance(host.options.gc_grace_ms - 20);
  EXPECT_EQ(host.Files().size(), files);
  host.Advance(100);
  host.Settle();
  EXPECT_EQ(host.Files().size(), host.store->store_use().segments_open);
  EXPECT_EQ(host.store->store_use().unlinked, files - host.Files().size());
}

TEST(SegmentStore, RecoveryNamesWhatIsNotThereAndUnlinksWhatNobodyNames) {
  Host host(Small());
  host.Recover();
  Prng prng(1);
  const PutRef kept = host.Write(RandomText(prng, 29'000));
  std::vector<PutRef> puts;
  for (int i = 0; i < 30; ++i) puts.push_back(host.Write(RandomText(prng, 29'000)));
  host.store = nullptr;

  Host again(Small(), host.volume);
  const PayloadId gone = IdOf({.segment = 900, .offset = 4096, .check = 7});
  const PayloadId never =
      IdOf({.segment = PlaceOf(kept->id).segment, .offset = 64 * 3, .check = 1});
  // The place of a payload, but the id of one that was there before.
  const PayloadId earlier = PayloadId(kept->id.value ^ 1);
  const StoreRecovery recovery = again.Recover({gone, never, kept->id, earlier, PayloadId(0)});
  EXPECT_EQ(recovery.payloads, 1u);
  EXPECT_EQ(recovery.last_number, 900u);
  ASSERT_EQ(recovery.lost.size(), 3u);
  EXPECT_EQ(again.Read(kept->id), kept->bytes);
  EXPECT_EQ(again.Load({gone})->answer->code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(again.Load({earlier})->answer->code(), absl::StatusCode::kNotFound);
  EXPECT_GT(recovery.dead_segments, 0u);
  again.Advance(again.options.gc_grace_ms + 100);
  again.Settle();
  // The newest one stays, for its number.
  EXPECT_EQ(again.Files().size(), 2u);
  EXPECT_EQ(again.Read(kept->id), kept->bytes);
}

TEST(SegmentStore, NoNumberComesAgain) {
  Prng prng(1);
  uint32_t last = 0;
  auto volume = std::make_shared<io::MemoryVolume>();
  for (int start = 0; start < 4; ++start) {
    Host host(Small(), volume);
    EXPECT_EQ(host.Recover().last_number, last);
    const PutRef put = host.Write(RandomText(prng, 450'000));  // a whole segment
    EXPECT_GT(PlaceOf(put->id).segment, last);
    last = PlaceOf(put->id).segment;
    host.store->Free({put->id});
    host.Advance(host.options.gc_grace_ms + 100);
    host.Settle();
    // Of the earlier starts nothing is left.
    EXPECT_EQ(host.Files().size(), 1u);
    host.store = nullptr;
    if (start == 1) host.disk->Crash(io::MemoryDisk::CrashKind::kPower);
  }
}

TEST(SegmentStore, ANewerSegmentThatIsNotDurableDoesNotStandInForTheNewest) {
  Prng prng(1);
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    Host host(Small(), nullptr, {.seed = seed});
    host.Recover();
    const PutRef put = host.Write(RandomText(prng, 450'000));
    host.store->Free({put->id});
    // The next segment is opened, and never gets as far as its entry's sync.
    host.disk->Inject({.what = io::Fault::What::kHang,
                       .operation = io::MemoryOperation::kSyncDirectory,
                       .times = UINT64_MAX});
    const PutRef next = StartPut(*host.store, "next");
    host.Advance(host.options.gc_grace_ms + 100);
    EXPECT_FALSE(next->answer.has_value());
    host.store = nullptr;
    host.disk->Crash(io::MemoryDisk::CrashKind::kPower);
    Host again(Small(), host.volume);
    EXPECT_GE(again.Recover().last_number, PlaceOf(put->id).segment) << "seed " << seed;
  }
}

TEST(SegmentStore, SealedBeforeItsEndItNeedsNoScan) {
  Host host(Small());
  host.Recover();
  Prng prng(1);
  std::vector<PutRef> puts;
  std::vector<PayloadId> live;
  bool sealed = false;
  for (int i = 0; i < 20; ++i) puts.push_back(StartPut(*host.store, RandomText(prng, 10'000)));
  host.store->Seal([&sealed] { sealed = true; });
  EXPECT_FALSE(sealed);
  host.Settle();
  EXPECT_TRUE(sealed);
  for (const PutRef& put : puts) {
    ASSERT_TRUE(put->ok());
    live.push_back(put->id);
  }
  EXPECT_EQ(host.store->store_use().segments_open, 0u);
  // What comes after all is taken.
  EXPECT_NE(host.Write("late"), nullptr);
  host.store = nullptr;

  Host again(Small(), host.volume);
  const StoreRecovery recovery = again.Recover(live);
  EXPECT_EQ(recovery.unsealed, 0u);
  EXPECT_EQ(recovery.payloads, live.size());
  for (const PutRef& put : puts) EXPECT_EQ(again.Read(put->id), put->bytes);
}

TEST(SegmentStore, SealingEndsThoughTheDiskFails) {
  Host host(Small());
  bool sealed = false;
  host.store->Seal([&sealed] { sealed = true; });
  EXPECT_TRUE(sealed);  // nothing has begun
  host.Recover();
  const PutRef put = host.Write("some");
  host.disk->Inject({.operation = io::MemoryOperation::kWrite, .error = EIO});
  sealed = false;
  host.store->Seal([&sealed] { sealed = true; });
  host.Settle();
  EXPECT_TRUE(sealed);
  EXPECT_EQ(host.Read(put->id), "some");
}

}  // namespace
}  // namespace forebay::storage
