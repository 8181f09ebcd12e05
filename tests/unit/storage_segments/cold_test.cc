// Payloads in two parts: written one after the other, kept, given up, read and lost apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "tests/unit/storage_segments/host.h"

namespace forebay::storage {
namespace {

using io::Fault;
using io::MemoryOperation;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kHot = 5'000, kCold = 40'000;
const uint64_t kHotFootprint = PayloadBuilder::Footprint(kHot);
const uint64_t kColdFootprint = PayloadBuilder::Footprint(kCold);

SegmentStoreOptions Options() {
  SegmentStoreOptions options;
  options.completion_reserve_bytes = 0;
  options.segment_bytes = 400'000;
  options.lanes = 1;
  return options;
}

class Cold : public testing::Test {
 protected:
  explicit Cold(SegmentStoreOptions options = Options()) : host(std::move(options)) {
    host.Recover();
  }

  PutRef Start() {
    return StartPut(*host.store, RandomText(prng, kHot + kCold), 1, nullptr, kCold);
  }
  PutRef Write() { return host.Write(RandomText(prng, kHot + kCold), kCold); }
  bool InMemory(const PutRef& put, Parts parts) {
    std::vector<PayloadView> views;
    return host.store->Open({put->id}, parts, &views).ok();
  }
  // All that can be given up.
  void Empty() {
    host.store->budget().SetLimits(0, 0);
    host.store->budget().SetLimits(host.options.bytes_max, 0);
  }
  std::vector<LiveRecord> Records() {
    PayloadId after;
    return host.store->LiveAfter(&after, 1'000);
  }
  PayloadId ColdOf(const PutRef& put) {
    for (const LiveRecord& record : Records()) {
      if (record.payload == put->id && record.part == Part::kCold) return record.head.id;
    }
    return PayloadId();
  }
  std::string PathOf(PayloadId id) const {
    return "/data/segments/" +
           FileNameOf({.node = host.options.node, .number = PlaceOf(id).segment});
  }
  // As another host would.
  void Remove(const std::string& path) {
    stranger.Unlink(path, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    host.time.Advance(20);
  }
  // What a new process finds after a clean end of the bytes that are synced.
  std::unique_ptr<Host> Reopened() {
    SegmentStoreOptions options = host.options;
    options.incarnation = 1;
    return std::make_unique<Host>(options, host.volume);
  }

  Prng prng{1};
  Host host;
  io::MemoryDisk stranger{host.volume, host.time.time(), {.host = 1}};
};

// Of the first segments in which there are cold and hot parts.
constexpr char kColdFile[] = "000001.seg", kHotFile[] = "000002.seg";

std::string HotOf(const PutRef& put) { return put->bytes.substr(0, kHot); }

// --- writing ---

TEST_F(Cold, ColdPartsLieInSegmentsOfTheirOwn) {
  const PutRef put = Write(), plain = host.Write(RandomText(prng, kHot));
  const auto records = Records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(host.Files().size(), 2u);
  const PayloadId cold = ColdOf(put);
  EXPECT_NE(PlaceOf(cold).segment, PlaceOf(put->id).segment);
  EXPECT_EQ(PlaceOf(plain->id).segment, PlaceOf(put->id).segment);
  for (const LiveRecord& record : records) {
    EXPECT_EQ(record.head.bytes, record.part == Part::kCold ? kCold : kHot);
    EXPECT_EQ(record.head.cold, record.head.id == put->id ? cold : PayloadId());
    EXPECT_EQ(record.payload, record.part == Part::kCold ? put->id : record.head.id);
  }
  const PayloadUse use = host.store->use();
  EXPECT_EQ(use.payloads, 2u);
  EXPECT_EQ(use.payload_bytes, 2 * kHot + kCold);
  EXPECT_EQ(host.store->store_use().cold_live_bytes, RecordBytes(kCold));
  EXPECT_EQ(host.Read(put->id), put->bytes);
}

TEST_F(Cold, PayloadsWithoutColdColumnsOpenNoSegmentOfThatKind) {
  host.Write(RandomText(prng, kHot));
  EXPECT_EQ(host.Files().size(), 1u);
}

TEST_F(Cold, IsAcknowledgedWhenBothPartsAreSafe) {
  host.disk->Inject({.what = Fault::What::kDelay,
                     .operation = MemoryOperation::kWrite,
                     .path = kHotFile,
                     .delay_ms = 1'000});
  const PutRef put = Start();
  host.Advance(500);
  EXPECT_FALSE(put->answer.has_value());
  const StoreUse use = host.store->store_use();
  EXPECT_EQ(use.cold_live_bytes, RecordBytes(kCold));  // it is safe
  EXPECT_EQ(use.waiting_bytes, kHot);
  EXPECT_EQ(host.store->use().payloads, 0u);
  EXPECT_TRUE(Records().empty());  // and nobody's
  host.Settle();
  EXPECT_TRUE(put->ok());
  EXPECT_EQ(host.store->use().payloads, 1u);
  EXPECT_EQ(host.store->store_use().waiting_bytes, 0u);
}

TEST_F(Cold, AFailedWriteOfEitherPartIsDoneAgainElsewhere) {
  const PutRef first = Write();
  for (const char* file : {kColdFile, kHotFile}) {
    host.disk->Inject({.operation = MemoryOperation::kWrite, .path = file, .error = EIO});
    const PutRef put = Start();
    host.Settle();
    host.Advance(1'000);
    ASSERT_TRUE(put->ok()) << file;
    Empty();
    EXPECT_EQ(host.Read(put->id), put->bytes);
  }
  EXPECT_EQ(host.store->store_use().failed_writes, 2u);
  EXPECT_EQ(host.Files().size(), 4u);
}

TEST_F(Cold, WhatIsNotStoredLeavesNoColdPartBehind) {
  host.disk->Inject(
      {.operation = MemoryOperation::kOpen, .path = kHotFile, .times = UINT64_MAX, .error = EIO});
  const PutRef put = Start();
  host.Advance(50);
  ASSERT_FALSE(put->answer.has_value());
  EXPECT_EQ(host.store->store_use().cold_live_bytes, RecordBytes(kCold));
  // The store ends before the hot part can be written.
  host.store = nullptr;
  ASSERT_TRUE(put->answer.has_value());
  EXPECT_FALSE(put->ok());
  const auto after = Reopened();
  const StoreRecovery recovery = after->Recover();
  EXPECT_EQ(recovery.payloads, 0u);
  EXPECT_GE(recovery.dead_segments, 1u);
  EXPECT_EQ(after->store->store_use().live_bytes, 0u);
}

class ColdOnASmallDisk : public Cold {
 protected:
  static SegmentStoreOptions Small() {
    SegmentStoreOptions options = Options();
    options.reserve_bytes = 100'000;
    options.write_bytes_max = 64 << 10;
    return options;
  }
  ColdOnASmallDisk() : Cold(Small()) {}
};

TEST_F(ColdOnASmallDisk, WhatIsWrittenWhenTheDiskIsFullIsCompletedWhenThereIsRoom) {
  host.volume->bytes_max = 1'000'000;
  std::vector<PutRef> puts;
  for (int i = 0; i < 60; ++i) {
    puts.push_back(Start());
    host.Advance(100);
  }
  host.Advance(2'000);
  EXPECT_EQ(host.store->trouble().kind, "full");
  EXPECT_LE(host.volume->used_bytes(), host.volume->bytes_max);
  // Few have but a cold part there.
  const auto answered = static_cast<uint64_t>(
      std::count_if(puts.begin(), puts.end(), [](const PutRef& put) { return put->ok(); }));
  EXPECT_GT(answered, 10u);
  EXPECT_LE(host.store->store_use().cold_live_bytes, (answered + 2) * RecordBytes(kCold));
  host.volume->bytes_max = 10'000'000;
  host.Advance(2'000);
  EXPECT_EQ(host.store->trouble().kind, "");
  for (const PutRef& put : puts) {
    ASSERT_TRUE(put->ok());
    EXPECT_EQ(host.Read(put->id), put->bytes);
  }
}

TEST_F(Cold, EverySegmentIsSealedWithItsIndex) {
  std::vector<PutRef> puts;
  for (int i = 0; i < 5; ++i) puts.push_back(Start());
  bool sealed = false;
  host.store->Seal([&] { sealed = true; });
  host.Settle();
  ASSERT_TRUE(sealed);
  EXPECT_EQ(host.store->store_use().segments_open, 0u);
  EXPECT_EQ(host.Files().size(), 2u);  // none was opened anew for what came behind the cold parts
  host.store = nullptr;
  const auto after = Reopened();
  std::vector<PayloadId> ids;
  for (const PutRef& put : puts) ids.push_back(put->id);
  const StoreRecovery recovery = after->Recover(ids);
  EXPECT_EQ(recovery.segments, 2u);
  EXPECT_EQ(recovery.unsealed, 0u);
  EXPECT_EQ(recovery.payloads, 5u);
  EXPECT_EQ(recovery.payload_bytes, 5 * (kHot + kCold));
  for (const PutRef& put : puts) EXPECT_EQ(after->Read(put->id), put->bytes);
}

TEST_F(Cold, PartsOfSeveralBlocksAreWhatWasWritten) {
  const std::string bytes = RandomText(prng, 9'000'000);
  for (const size_t cold : {size_t{1}, size_t{4'000'000}, size_t{8'999'999}}) {
    const PutRef put = host.Write(bytes, cold);
    Empty();
    EXPECT_EQ(host.Read(put->id), bytes) << cold;
    host.store->Free({put->id});
  }
}

// --- recovery ---

class ColdRecovery : public Cold {
 protected:
  // Writes three, and damages something of the second one's cold part.
  void Damage(const std::function<void(PayloadId cold)>& damage) {
    for (int i = 0; i < 3; ++i) puts.push_back(Write());
    const PayloadId cold = ColdOf(puts[1]);
    host.store = nullptr;
    damage(cold);
    after = Reopened();
    std::vector<PayloadId> ids;
    for (const PutRef& put : puts) ids.push_back(put->id);
    recovery = after->Recover(ids);
  }

  std::vector<PutRef> puts;
  std::unique_ptr<Host> after;
  StoreRecovery recovery;
};

TEST_F(ColdRecovery, FindsBothPartsByTheIdOfThePayload) {
  Damage([](PayloadId) {});
  EXPECT_EQ(recovery.payloads, 3u);
  EXPECT_EQ(recovery.segments, 2u);
  EXPECT_TRUE(recovery.lost.empty());
  for (const PutRef& put : puts) EXPECT_EQ(after->Read(put->id), put->bytes);
  const LoadedRef hot = after->Load({puts[0]->id}, Parts::kHot);
  ASSERT_TRUE(hot->ok());
  EXPECT_EQ(hot->views[0].bytes(), kHot + kCold);
}

TEST_F(ColdRecovery, APayloadWhoseColdPartHasNoHeadIsLost) {
  Damage([this](PayloadId cold) {
    host.disk->FlipStoredBit(PathOf(cold), PlaceOf(cold).offset + 9, 1);
  });
  EXPECT_EQ(recovery.payloads, 2u);
  EXPECT_EQ(recovery.payload_bytes, 2 * (kHot + kCold));
  ASSERT_EQ(recovery.lost.size(), 1u);
  EXPECT_EQ(recovery.lost[0].id, puts[1]->id);
  EXPECT_THAT(recovery.lost[0].why, AllOf(HasSubstr("cold columns"), HasSubstr("record head")));
  EXPECT_EQ(after->store->use().payloads, 2u);
  EXPECT_EQ(after->Read(puts[0]->id), puts[0]->bytes);
  EXPECT_THAT(after->Read(puts[1]->id), HasSubstr("NOT_FOUND"));
}

TEST_F(ColdRecovery, PayloadsWhoseColdFileIsGoneAreLost) {
  Damage([this](PayloadId cold) { Remove(PathOf(cold)); });
  EXPECT_EQ(recovery.payloads, 0u);
  ASSERT_EQ(recovery.lost.size(), 3u);
  for (const LostPayload& lost : recovery.lost) {
    EXPECT_THAT(lost.why, AllOf(HasSubstr("cold columns"), HasSubstr("is not in /data/segments")));
  }
  // The number is not given again.
  EXPECT_EQ(recovery.last_number, 2u);
}

TEST_F(ColdRecovery, AFileOfALaterFormatEndsItAndCostsNothing) {
  for (int i = 0; i < 3; ++i) puts.push_back(Write());
  const std::string path = PathOf(ColdOf(puts[0]));
  host.store = nullptr;
  // The version lies behind the magic; the crc ends the page.
  std::string page = EncodeSegmentHeader({.cluster = host.options.cluster,
                                          .name = {.node = host.options.node, .number = 1},
                                          .nonce = 1,
                                          .part = Part::kCold});
  page[8] = 3;
  const uint32_t crc = Crc32c(std::string_view(page).substr(0, kSegmentPage - 4));
  std::copy_n(reinterpret_cast<const char*>(&crc), 4, page.data() + kSegmentPage - 4);
  stranger.Open(path, {.mode = io::OpenMode::kWrite}, [&](absl::StatusOr<io::FileRef> file) {
    ASSERT_TRUE(file.ok());
    stranger.Write(*file, 0, {{page.data(), page.size()}},
                   [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  });
  host.time.Advance(100);
  after = Reopened();
  std::vector<PayloadId> ids;
  for (const PutRef& put : puts) ids.push_back(put->id);
  const auto result = after->StartRecovery(ids);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(result->status().ToString(), AllOf(HasSubstr(path), HasSubstr("format version 3")));
  EXPECT_EQ(after->store->use().payloads, 0u);
  EXPECT_EQ(after->Files().size(), 2u);
}

TEST_F(ColdRecovery, WhatNoLivePayloadNamesIsGarbage) {
  for (int i = 0; i < 3; ++i) puts.push_back(Write());
  const uint64_t files = host.Files().size();
  ASSERT_EQ(files, 2u);
  host.store = nullptr;
  after = Reopened();
  recovery = after->Recover({puts[2]->id});
  EXPECT_EQ(recovery.payloads, 1u);
  EXPECT_EQ(after->store->store_use().live_bytes, RecordBytes(kHot) + RecordBytes(kCold));
  after->store->Free({puts[2]->id});
  const StoreUse use = after->store->store_use();
  EXPECT_EQ(use.live_bytes, 0u);
  EXPECT_EQ(use.segments_dead, 2u);
  after->Write("x");  // the newest stays, and this is it
  after->Advance(after->options.gc_grace_ms + 100);
  EXPECT_EQ(after->Files().size(), 1u);
}

// --- memory ---

SegmentStoreOptions TenOfBoth() {
  SegmentStoreOptions options = Options();
  options.segment_bytes = 4'000'000;
  options.bytes_max = 10 * (kHotFootprint + kColdFootprint);
  options.want_bytes_max = 4 * kHotFootprint;
  options.ahead_bytes_max = kHotFootprint;
  return options;
}

class ColdMemory : public Cold {
 protected:
  ColdMemory() : Cold(TenOfBoth()) {}
  uint64_t used() const { return host.store->use().budget.used_bytes; }
};

TEST_F(ColdMemory, ColdPartsAreGivenUpBeforeAllHotOnes) {
  std::vector<PutRef> puts;
  for (int i = 0; i < 30; ++i) puts.push_back(Write());
  size_t cold = 0;
  for (const PutRef& put : puts) {
    EXPECT_TRUE(InMemory(put, Parts::kHot));
    cold += InMemory(put, Parts::kAll) ? 1 : 0;
  }
  EXPECT_GT(cold, 4u);
  EXPECT_LT(cold, 10u);
  const StoreUse use = host.store->store_use();
  EXPECT_EQ(use.cold_resident_bytes, cold * kColdFootprint);
  EXPECT_EQ(use.resident_bytes, cold * kColdFootprint + 30 * kHotFootprint);
  EXPECT_EQ(used(), use.resident_bytes);
}

TEST_F(ColdMemory, TheHotPartIsLoadedAlone) {
  const PutRef put = Write();
  Empty();
  ASSERT_EQ(used(), 0u);
  LoadedRef loaded = host.Load({put->id}, Parts::kHot);
  ASSERT_TRUE(loaded->ok());
  const PayloadView& view = loaded->views[0];
  EXPECT_EQ(used(), kHotFootprint);
  EXPECT_EQ(view.bytes(), kHot + kCold);
  EXPECT_EQ(view.bytes(Part::kHot), kHot);
  EXPECT_EQ(view.bytes(Part::kCold), kCold);
  EXPECT_EQ(view.header(), put->bytes.substr(0, 1));
  std::vector<BlockSlice> slices;
  ASSERT_TRUE(view.Slices(0, kHot, &slices).ok());
  EXPECT_EQ(std::string(slices[0].data, slices[0].size), HotOf(put));
  // Bytes of the other part are refused, and nothing is appended.
  slices.clear();
  for (const uint64_t offset : {kHot - 1, kHot, kHot + kCold - 2}) {
    EXPECT_EQ(view.Slices(offset, 2, &slices).code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(view.Slices(kHot + kCold - 1, 2, &slices).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(view.Slices(kHot, 0, &slices).ok());
  EXPECT_TRUE(slices.empty());
  EXPECT_FALSE(InMemory(put, Parts::kAll));
  // The rest of it alone is read then.
  const uint64_t before = host.store->store_use().read_back_bytes;
  EXPECT_EQ(host.Read(put->id), put->bytes);
  EXPECT_EQ(host.store->store_use().read_back_bytes - before, kCold);
  EXPECT_EQ(used(), kHotFootprint + kColdFootprint);
}

TEST_F(ColdMemory, OneLoadMayWantDifferentPartsOfItsPayloads) {
  std::vector<PutRef> puts;
  for (int i = 0; i < 4; ++i) puts.push_back(Write());
  Empty();
  std::vector<PayloadParts> wanted;
  for (size_t i = 0; i < 4; ++i) {
    wanted.push_back({puts[i]->id, i % 2 == 0 ? Parts::kAll : Parts::kHot});
  }
  std::optional<std::vector<PayloadView>> views;
  host.store->LoadParts(wanted, [&](auto loaded) { views = *std::move(loaded); });
  host.Settle();
  ASSERT_TRUE(views.has_value());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ((*views)[i].holds(Part::kCold), i % 2 == 0) << i;
  EXPECT_EQ(BytesOf((*views)[2]), puts[2]->bytes);
  EXPECT_EQ(used(), 4 * kHotFootprint + 2 * kColdFootprint);
}

TEST_F(ColdMemory, ALoadOfHotPartsNeedsNoRoomForTheColdOnes) {
  std::vector<PutRef> puts;
  std::vector<PayloadId> ids;
  for (int i = 0; i < 30; ++i) {
    puts.push_back(Write());
    ids.push_back(puts.back()->id);
  }
  Empty();
  EXPECT_EQ(host.Load(ids)->answer->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(used(), 0u);
  const LoadedRef hot = host.Load(ids, Parts::kHot);
  ASSERT_TRUE(hot->ok());
  EXPECT_EQ(used(), 30 * kHotFootprint);
  // What is held is not given up for others.
  EXPECT_TRUE(host.Load({ids[0]})->ok());
  EXPECT_LE(used(), host.options.bytes_max);
}

TEST_F(ColdMemory, ManyLoadsOfBothPartsWaitForEachOthersMemoryAndAllEnd) {
  std::vector<PutRef> puts;
  for (int i = 0; i < 30; ++i) puts.push_back(Write());
  Empty();
  std::vector<LoadedRef> loads;
  for (int i = 0; i < 60; ++i) {
    std::vector<PayloadId> ids;
    for (int k = 0; k < 8; ++k) ids.push_back(puts[prng.Below(30)]->id);
    loads.push_back(StartLoad(*host.store, ids, i % 3 == 0 ? Parts::kHot : Parts::kAll));
  }
  for (size_t ended = 0, rounds = 0; ended < loads.size() && rounds < 1'000; ++rounds) {
    host.Advance(10);
    EXPECT_LE(used(), host.options.bytes_max);
    ended = 0;
    for (const LoadedRef& load : loads) {
      if (!load->answer.has_value()) continue;
      ++ended;
      EXPECT_TRUE(load->ok());
      load->views.clear();
    }
  }
  for (const LoadedRef& load : loads) EXPECT_TRUE(load->answer.has_value());
}

TEST_F(ColdMemory, OnlyHotPartsAreReadAhead) {
  std::vector<PutRef> puts;
  std::vector<PayloadId> ids;
  for (int i = 0; i < 3; ++i) {
    puts.push_back(Write());
    ids.push_back(puts.back()->id);
  }
  Empty();
  host.store->Want(StepId(1), ids);
  host.Settle();
  for (const PutRef& put : puts) {
    EXPECT_TRUE(InMemory(put, Parts::kHot));
    EXPECT_FALSE(InMemory(put, Parts::kAll));
  }
  EXPECT_EQ(host.store->store_use().wanted_bytes, 3 * kHotFootprint);
  EXPECT_EQ(host.Read(ids[0]), puts[0]->bytes);
  EXPECT_EQ(host.store->store_use().wanted_bytes, 2 * kHotFootprint);
}

TEST_F(ColdMemory, CoolAndFreeTakeBothParts) {
  const PutRef cooled = Write(), freed = Write();
  host.store->Cool({&cooled->id, 1});
  EXPECT_EQ(used(), kHotFootprint + kColdFootprint);
  EXPECT_FALSE(InMemory(cooled, Parts::kHot));
  host.store->Free({freed->id});
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(host.store->use().payloads, 1u);
  EXPECT_EQ(host.store->use().payload_bytes, kHot + kCold);
  EXPECT_EQ(host.store->store_use().cold_live_bytes, RecordBytes(kCold));
  host.store->Free({freed->id, cooled->id});
  EXPECT_EQ(host.store->store_use().live_bytes, 0u);
  EXPECT_TRUE(Records().empty());
}

TEST_F(ColdMemory, APartThatIsFreedWhileItIsReadIsNotFound) {
  const PutRef put = Write();
  Empty();
  const LoadedRef loaded = StartLoad(*host.store, {put->id});
  host.store->Free({put->id});
  host.Settle();
  ASSERT_TRUE(loaded->answer.has_value());
  EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(used(), 0u);
}

// --- damage ---

TEST_F(ColdMemory, DamageOfTheColdPartNamesThePayloadAndThePlace) {
  const PutRef put = Write(), whole = Write();
  const PayloadId cold = ColdOf(put);
  host.disk->FlipStoredBit(PathOf(cold), PlaceOf(cold).offset + kRecordHeadBytes + kCold - 1, 3);
  Empty();
  const LoadedRef loaded = host.Load({whole->id, put->id});
  ASSERT_TRUE(loaded->answer.has_value());
  EXPECT_EQ(loaded->answer->code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      loaded->answer->ToString(),
      AllOf(HasSubstr(PathOf(cold)), HasSubstr(absl::StrCat("offset ", PlaceOf(cold).offset)),
            HasSubstr("cold columns"), HasSubstr(absl::StrCat(absl::Hex(put->id.value)))));
  EXPECT_THAT(LostOf(*loaded->answer), ElementsAre(put->id));
  // Who does not ask for it has what he wants.
  const LoadedRef hot = host.Load({put->id}, Parts::kHot);
  ASSERT_TRUE(hot->ok());
  // So does verification, which looks at each part.
  const auto checker = host.store->NewChecker();
  size_t damaged = 0;
  for (const LiveRecord& record : Records()) {
    std::optional<absl::Status> answer;
    checker->Check(record, [&answer](absl::Status status) { answer = std::move(status); });
    host.Settle();
    ASSERT_TRUE(answer.has_value());
    if (answer->ok()) continue;
    ++damaged;
    EXPECT_EQ(record.head.id, cold);
    EXPECT_THAT(answer->ToString(),
                AllOf(HasSubstr("DATA_LOSS"), HasSubstr(PathOf(cold)), HasSubstr("cold columns")));
  }
  EXPECT_EQ(damaged, 1u);
}

TEST_F(ColdMemory, AFileOfColdPartsThatIsGoneIsToldWithWhatLiesInIt) {
  const PutRef put = Write();
  Remove(PathOf(ColdOf(put)));
  host.Advance(host.options.presence_ms + 100);
  const StoreTrouble trouble = host.store->trouble();
  EXPECT_EQ(trouble.kind, "incomplete");
  EXPECT_THAT(trouble.what, HasSubstr("1 file is gone, with cold columns of 1 rollouts"));
  EXPECT_EQ(host.store->store_use().segments_gone, 1u);
  host.store->Free({put->id});
  EXPECT_EQ(host.store->trouble().kind, "");
}

}  // namespace
}  // namespace forebay::storage
