// Task contents that come back to the same ids.
#include "storage/content_log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/storage_log/log_bench.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kBytesMax = uint64_t{200} << 20;

template <class Kind>
class ContentLogTest : public LogTest<Kind> {
 protected:
  // As a start of the daemon: what was acknowledged is read back.
  absl::Status Open(uint64_t bytes_max = kBytesMax) {
    log_.reset();
    store_ = std::make_unique<ContentStore>(bytes_max);
    std::vector<PayloadId> named;
    for (const auto& [id, item] : acknowledged_) named.push_back(id);
    auto recovered = RecoverContents(this->blocking(), this->directory(), named, store_.get());
    if (!recovered.ok()) return recovered.status();
    recovered_ = *recovered;
    LogOptions options = this->options();
    options.file_bytes = 3'000'000;
    log_ = std::make_unique<ContentLog>(this->kind_.disk.get(), options, recovered_.log,
                                        store_.get(), this->loop_.post(), this->loop_.post(),
                                        [this](absl::Status) { ++failed_calls_; });
    return absl::OkStatus();
  }
  // Adds, and keeps what was answered.
  void Add(std::vector<std::string> items) {
    std::vector<std::string_view> views(items.begin(), items.end());
    ++asked_;
    log_->Add(views, [this, items](absl::StatusOr<std::vector<PayloadId>> ids) {
      ++answered_;
      if (!ids.ok()) {
        refused_ = ids.status();
        return;
      }
      ASSERT_EQ(ids->size(), items.size());
      for (size_t i = 0; i < items.size(); ++i) acknowledged_.emplace_back((*ids)[i], items[i]);
    });
  }
  void AwaitAll() {
    this->RunUntil([this] { return answered_ == asked_; });
  }
  // The others are named no more.
  void KeepOneOf(size_t count) {
    std::vector<std::pair<PayloadId, std::string>> kept;
    for (size_t i = 0; i < acknowledged_.size(); i += count) kept.push_back(acknowledged_[i]);
    acknowledged_ = std::move(kept);
  }
  void ExpectAcknowledged() {
    for (const auto& [id, item] : acknowledged_) {
      const auto read = store_->Read(id);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, item);
    }
  }

  std::unique_ptr<ContentStore> store_;
  RecoveredContents recovered_;
  std::unique_ptr<ContentLog> log_;
  std::vector<std::pair<PayloadId, std::string>> acknowledged_;
  absl::Status refused_;
  int asked_ = 0, answered_ = 0, failed_calls_ = 0;
};

using Kinds = testing::Types<io::PoolKind, io::UringKind, io::MemoryKind>;
TYPED_TEST_SUITE(ContentLogTest, Kinds);

TYPED_TEST(ContentLogTest, ItemsComeBackToTheirIdsOverManyStarts) {
  for (int start = 0; start < 4; ++start) {
    ASSERT_TRUE(this->Open().ok());
    this->ExpectAcknowledged();
    EXPECT_EQ(this->store_->use().items, this->acknowledged_.size());
    for (int i = 0; i < 10; ++i) {
      this->Add({std::string(static_cast<size_t>(i) * 40'000, 'a'), "", absl::StrCat("task ", i),
                 std::string(i == 3 ? 2'000'000 : 5, 'b')});
    }
    this->Add({});
    this->AwaitAll();
    this->ExpectAcknowledged();
  }
  ASSERT_TRUE(this->Open().ok());
  this->ExpectAcknowledged();
  EXPECT_EQ(this->acknowledged_.size(), 160u);
  EXPECT_EQ(this->recovered_.log.records, 160u);
}

TYPED_TEST(ContentLogTest, NothingIsAnsweredBeforeItIsDurable) {
  ASSERT_TRUE(this->Open().ok());
  this->Add({"one", "two"});
  EXPECT_EQ(this->answered_, 0);
  this->AwaitAll();
  EXPECT_EQ(this->acknowledged_.size(), 2u);
  EXPECT_GE(this->kind_.disk->use().syncs, 2u);
}

TYPED_TEST(ContentLogTest, WhatDoesNotFitIsRefusedAndWrittenNowhere) {
  ASSERT_TRUE(this->Open(3 << 20).ok());
  this->Add({std::string(2'000'000, 'a')});
  this->Add({std::string(2'000'000, 'b')});
  EXPECT_EQ(this->answered_, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(this->refused_));
  this->AwaitAll();
  this->Add({"small"});
  this->AwaitAll();
  ASSERT_TRUE(this->Open(3 << 20).ok());
  this->ExpectAcknowledged();
  EXPECT_EQ(this->store_->use().items, 2u);
  // A smaller limit is no reason to lose what is there.
  EXPECT_TRUE(absl::IsResourceExhausted(this->Open(1 << 20)));
}

TYPED_TEST(ContentLogTest, WhatNobodyNamesTakesNoMemoryAndItsIdDoesNotComeAgain) {
  ASSERT_TRUE(this->Open().ok());
  for (const char letter : {'a', 'b', 'c', 'd'}) this->Add({std::string(900'000, letter)});
  this->AwaitAll();
  const auto all = this->acknowledged_;
  this->acknowledged_ = {all[1]};
  ASSERT_TRUE(this->Open(2 << 20).ok());
  EXPECT_EQ(this->store_->use().items, 1u);
  EXPECT_EQ(this->store_->use().arena_bytes, ContentStore::kArenaBytes);
  EXPECT_EQ(this->recovered_.dead_bytes, 2'700'000u);
  this->ExpectAcknowledged();
  EXPECT_FALSE(this->store_->Read(all[0].first).ok());
  this->Add({"small"});
  this->Add({std::string(900'000, 'e')});  // a third arena, beyond the limit
  this->AwaitAll();
  EXPECT_TRUE(absl::IsResourceExhausted(this->refused_)) << this->refused_;
  ASSERT_EQ(this->acknowledged_.size(), 2u);
  for (const auto& [id, item] : all) EXPECT_NE(this->acknowledged_[1].first, id);
  ASSERT_TRUE(this->Open().ok());
  this->ExpectAcknowledged();
}

TYPED_TEST(ContentLogTest, ACompactedLogHoldsWhatIsLiveAndGoesOn) {
  for (int start = 0; start < 3; ++start) {
    ASSERT_TRUE(this->Open().ok());
    for (int i = 0; i < 60; ++i) {
      this->Add({absl::StrCat(start, " ", i, std::string(static_cast<size_t>(i) * 5'000, 'a')),
                 std::string(i == 30 ? 3'000'000 : 1, 'b')});
    }
    this->AwaitAll();
    this->KeepOneOf(5);
    ASSERT_TRUE(this->Open().ok());
    this->ExpectAcknowledged();
    ASSERT_TRUE(this->recovered_.half_dead());
    const uint64_t read = this->recovered_.log.bytes;
    this->log_->Compact(this->recovered_.live);
    this->Add({"meanwhile"});
    this->AwaitAll();
    this->RunUntil([this] { return !this->log_->compacting(); });
    ASSERT_TRUE(this->Open().ok());
    EXPECT_GT(this->recovered_.log.snapshot.value, 0u);
    EXPECT_EQ(this->recovered_.dead_bytes, 0u);
    EXPECT_LT(this->recovered_.log.bytes, read / 2);
    this->ExpectAcknowledged();
  }
}

TYPED_TEST(ContentLogTest, ANamedItemThatIsMissingIsAnError) {
  ASSERT_TRUE(this->Open().ok());
  this->Add({"one", "two"});
  this->AwaitAll();
  this->acknowledged_.emplace_back(PayloadId(0x100099), "three");
  const absl::Status status = this->Open();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_EQ(status.message(), absl::StrCat("the task contents in ", this->directory(),
                                           ": 1 of the 3 that the run has are missing. Nothing "
                                           "was changed. Check the disk, and bring the files back "
                                           "from a copy"));
}

TYPED_TEST(ContentLogTest, NamedItemsInADamagedTailAreNoTornTail) {
  ASSERT_TRUE(this->Open().ok());
  this->Add({"one", "two"});
  this->AwaitAll();
  this->log_.reset();
  Blocking disk = this->blocking();
  const auto entries = disk.List(this->directory());
  ASSERT_TRUE(entries.ok() && entries->size() == 1);
  const std::string path = absl::StrCat(this->directory(), "/", entries->front().name);
  const auto read = [&] {
    std::string bytes(entries->front().bytes, 0);
    auto file = disk.Open(path, io::OpenMode::kRead);
    EXPECT_TRUE(file.ok() && disk.Read(*file, 0, absl::MakeSpan(bytes)).ok());
    return bytes;
  };
  std::string damaged = read();
  damaged[damaged.find("one")] ^= 1;
  {
    auto file = disk.Open(path, io::OpenMode::kWrite);
    ASSERT_TRUE(file.ok() && disk.Write(*file, 0, damaged).ok());
  }
  const absl::Status status = this->Open();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_NE(status.message().find("2 of the 2"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find(absl::StrCat(path, " at offset ")), absl::string_view::npos)
      << status;
  EXPECT_EQ(read(), damaged);
}

class ContentLogFaultTest : public ContentLogTest<io::MemoryKind> {
 protected:
  io::MemoryDisk& memory() { return static_cast<io::MemoryDisk&>(*kind_.disk); }
};

TEST_F(ContentLogFaultTest, AFailedSyncRefusesWhatWaitsAndWhatComes) {
  ASSERT_TRUE(Open().ok());
  Add({"kept"});
  AwaitAll();
  memory().Inject({.operation = io::MemoryOperation::kSync});
  Add({"lost"});
  AwaitAll();
  EXPECT_TRUE(absl::IsUnavailable(refused_)) << refused_;
  EXPECT_EQ(failed_calls_, 1);
  EXPECT_EQ(store_->use().dead_bytes, 5u);
  refused_ = absl::OkStatus();
  Add({"later"});
  EXPECT_TRUE(absl::IsUnavailable(refused_));
  EXPECT_EQ(acknowledged_.size(), 1u);
  ASSERT_TRUE(Open().ok());
  ExpectAcknowledged();
}

TEST_F(ContentLogFaultTest, AcknowledgedItemsSurviveAPowerLossAtEveryMoment) {
  kind_.volume->Record();
  std::vector<std::pair<uint64_t, size_t>> told;
  for (int start = 0; start < 3; ++start) {
    ASSERT_TRUE(Open().ok());
    for (int i = 0; i < 15; ++i) {
      Add({std::string(static_cast<size_t>(i * 613 + start), 'a')});
      for (int step = 0; step < i % 4; ++step) {
        if (!loop_.RunOne()) Turn(kind_);
        told.emplace_back(kind_.volume->events(), acknowledged_.size());
      }
    }
    AwaitAll();
    told.emplace_back(kind_.volume->events(), acknowledged_.size());
  }
  log_.reset();
  RunAll();
  for (uint64_t events = 0; events <= kind_.volume->events(); ++events) {
    size_t least = 0;
    for (const auto& [at, count] : told) least = at <= events ? count : least;
    io::ManualTime time;
    io::MemoryDisk disk(kind_.volume->AfterPowerLoss(events, events * 31), time.time(), {});
    ContentStore store(kBytesMax);
    std::vector<PayloadId> named;
    for (size_t i = 0; i < least; ++i) named.push_back(acknowledged_[i].first);
    const auto recovered =
        RecoverContents(Blocking(&disk, [&] { return time.RunOne(); }), directory(), named, &store);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    for (size_t i = 0; i < least; ++i) {
      ASSERT_EQ(*store.Read(acknowledged_[i].first), acknowledged_[i].second);
    }
  }
}

TEST_F(ContentLogFaultTest, ACompactionThatAPowerLossCutsLosesNothing) {
  ASSERT_TRUE(Open().ok());
  for (int i = 0; i < 40; ++i) Add({std::string(100'000, static_cast<char>('a' + i % 26))});
  AwaitAll();
  KeepOneOf(7);
  kind_.volume->Record();
  ASSERT_TRUE(Open().ok());
  const std::vector<PayloadId> named = recovered_.live;
  ASSERT_TRUE(recovered_.half_dead());
  log_->Compact(named);
  RunAll();
  log_.reset();
  RunAll();
  for (uint64_t events = 0; events <= kind_.volume->events(); ++events) {
    io::ManualTime time;
    io::MemoryDisk disk(kind_.volume->AfterPowerLoss(events, events * 31), time.time(), {});
    ContentStore store(kBytesMax);
    const auto recovered =
        RecoverContents(Blocking(&disk, [&] { return time.RunOne(); }), directory(), named, &store);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    for (const auto& [id, item] : acknowledged_) ASSERT_EQ(*store.Read(id), item);
  }
}

TEST_F(ContentLogFaultTest, ADamagedCompactionHasAFallback) {
  ASSERT_TRUE(Open().ok());
  for (int i = 0; i < 40; ++i) Add({std::string(100'000, static_cast<char>('a' + i % 26))});
  AwaitAll();
  for (int compaction = 1; compaction <= 2; ++compaction) {
    KeepOneOf(3);
    ASSERT_TRUE(Open().ok());
    log_->Compact(recovered_.live);
    RunAll();
    ASSERT_TRUE(Open().ok());
    const LogPosition newest = recovered_.log.snapshot;
    log_.reset();
    RunAll();
    memory().FlipStoredBit(absl::StrCat(directory(), "/", SnapshotName(newest)), 5'000, 1);
    ASSERT_TRUE(Open().ok());
    EXPECT_LT(recovered_.log.snapshot, newest);
    ExpectAcknowledged();
    for (int i = 0; i < 20; ++i) Add({std::string(100'000, 'z')});
    AwaitAll();
  }
}

TEST_F(ContentLogFaultTest, ACompactionThatFailsChangesNothing) {
  ASSERT_TRUE(Open().ok());
  for (int i = 0; i < 40; ++i) Add({std::string(100'000, 'a')});
  AwaitAll();
  KeepOneOf(7);
  ASSERT_TRUE(Open().ok());
  RunAll();
  memory().Inject({.operation = io::MemoryOperation::kRename});
  log_->Compact(recovered_.live);
  RunAll();
  Add({"more"});
  AwaitAll();
  ASSERT_TRUE(Open().ok());
  ExpectAcknowledged();
  EXPECT_EQ(recovered_.log.snapshot.value, 0u);
  EXPECT_TRUE(recovered_.half_dead());
}

}  // namespace
}  // namespace forebay::storage
