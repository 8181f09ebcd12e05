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
  // As a start of the daemon: what was there is read back.
  absl::Status Open(uint64_t bytes_max = kBytesMax) {
    log_.reset();
    store_ = std::make_unique<ContentStore>(bytes_max);
    auto recovered = RecoverContents(this->blocking(), this->directory(), store_.get());
    if (!recovered.ok()) return recovered.status();
    recovered_ = *recovered;
    LogOptions options = this->options();
    options.file_bytes = 3'000'000;
    log_ =
        std::make_unique<ContentLog>(this->kind_.disk.get(), options, recovered_, store_.get(),
                                     this->loop_.post(), [this](absl::Status) { ++failed_calls_; });
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
  void ExpectAcknowledged() {
    for (const auto& [id, item] : acknowledged_) {
      const auto read = store_->Read(id);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, item);
    }
  }

  std::unique_ptr<ContentStore> store_;
  RecoveredLog recovered_;
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
  EXPECT_EQ(this->recovered_.records, 160u);
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
    const auto recovered =
        RecoverContents(Blocking(&disk, [&] { return time.RunOne(); }), directory(), &store);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    ASSERT_GE(recovered->records, least);
    for (size_t i = 0; i < recovered->records; ++i) {
      ASSERT_EQ(*store.Read(acknowledged_[i].first), acknowledged_[i].second);
    }
  }
}

}  // namespace
}  // namespace forebay::storage
