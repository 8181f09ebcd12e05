// The log's writer and its recovery over every kind of disk.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "tests/unit/storage_log/log_bench.h"

namespace forebay::storage {
namespace {

template <class Kind>
class LogWriterTest : public LogTest<Kind> {
 protected:
  void ExpectRecords(const Recovered& recovered, uint64_t first, uint64_t next) {
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    EXPECT_EQ(recovered.log->next.value, next);
    EXPECT_TRUE(recovered.dense());
    EXPECT_EQ(recovered.records.size(), next - first);
    for (const auto& [position, record] : recovered.records) {
      EXPECT_EQ(record, RecordOf(position)) << position;
    }
  }
};

using Kinds = testing::Types<io::PoolKind, io::UringKind, io::MemoryKind>;
TYPED_TEST_SUITE(LogWriterTest, Kinds);

TYPED_TEST(LogWriterTest, ANewMachineBeginsWithTheFirstRecord) {
  const Recovered recovered = Recover(this->blocking(), this->directory());
  ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
  EXPECT_EQ(recovered.log->next, LogPosition(1));
  EXPECT_EQ(recovered.log->file_number, 1u);
  EXPECT_TRUE(recovered.log->notes.empty());
}

TYPED_TEST(LogWriterTest, WhatIsDurableComesBackInOrder) {
  this->Start(this->options());
  for (int round = 0; round < 20; ++round) {
    this->Append(round);
    this->Drain();
  }
  EXPECT_EQ(this->writer_->pending_bytes(), 0u);
  const Recovered recovered = this->Restart(this->options());
  this->ExpectRecords(recovered, 1, 191);
  EXPECT_FALSE(recovered.log->tail_cut);
  EXPECT_TRUE(recovered.log->notes.empty());
}

TYPED_TEST(LogWriterTest, WhatIsAppendedInOneTurnSharesOneSync) {
  this->Start(this->options());
  this->Append(1);
  this->Drain();
  const uint64_t syncs = this->kind_.disk->use().syncs;
  this->Append(100);
  this->Drain();
  EXPECT_EQ(this->kind_.disk->use().syncs, syncs + 1);
  EXPECT_EQ(this->writer_->use().batches, 2u);
  EXPECT_EQ(this->writer_->use().records, 101u);
}

TYPED_TEST(LogWriterTest, WhatComesDuringASyncSharesTheNext) {
  this->Start(this->options());
  this->Append(1);
  this->Drain();
  this->Append(1);
  ASSERT_TRUE(this->loop_.RunOne());  // on its way
  for (int i = 0; i < 50; ++i) this->Append(1);
  EXPECT_GT(this->writer_->pending_bytes(), 0u);
  this->Drain();
  EXPECT_EQ(this->writer_->use().batches, 3u);
}

TYPED_TEST(LogWriterTest, ABatchIsBoundedInBytes) {
  LogOptions options = this->options();
  options.batch_bytes_max = 10'000;
  this->Start(options);
  this->Append(100);
  this->Drain();
  EXPECT_GE(this->writer_->use().batches, 14u);
  this->ExpectRecords(this->Restart(options), 1, 101);
}

TYPED_TEST(LogWriterTest, ARecordLongerThanABatchIsOneOfItsOwn) {
  LogOptions options = this->options();
  options.batch_bytes_max = 10'000;
  this->Start(options);
  const std::string big(3'000'000, 'b');
  this->Append(1);
  this->writer_->Append(LogPosition(this->next_++), big);
  this->Append(1);
  this->Drain();
  const Recovered recovered = this->Restart(options);
  ASSERT_TRUE(recovered.log.ok());
  EXPECT_EQ(recovered.records.size(), 3u);
  EXPECT_EQ(recovered.records.at(2), big);
}

TYPED_TEST(LogWriterTest, AFullFileIsFollowedByAnother) {
  LogOptions options = this->options();
  options.file_bytes = 20'000;
  this->Start(options);
  for (int i = 0; i < 60; ++i) {
    this->Append(2);
    this->Drain();
  }
  EXPECT_GE(this->writer_->use().files, 10u);
  const Recovered recovered = this->Restart(options);
  this->ExpectRecords(recovered, 1, 121);
  // And so it goes on over starts.
  this->Append(30);
  this->Drain();
  this->ExpectRecords(this->Restart(options), 1, 151);
}

TYPED_TEST(LogWriterTest, ManyStartsWithoutARecordDoNoHarm) {
  this->Start(this->options());
  this->Append(3);
  this->Drain();
  for (int i = 0; i < 5; ++i) {
    this->ExpectRecords(this->Restart(this->options()), 1, 4);
    EXPECT_EQ(this->blocking().List(this->directory())->size(), 1u);
  }
  this->Append(2);
  this->Drain();
  this->ExpectRecords(this->Restart(this->options()), 1, 6);
}

TYPED_TEST(LogWriterTest, ADirectoryOfAnotherMachineIsRefused) {
  this->Start(this->options());
  this->Append(3);
  this->Drain();
  this->writer_.reset();
  const Recovered recovered = Recover(this->blocking(), this->directory(), "shard-4");
  EXPECT_TRUE(absl::IsFailedPrecondition(recovered.log.status())) << recovered.log.status();
  EXPECT_NE(recovered.log.status().message().find("shard-3-"), std::string::npos);
}

TYPED_TEST(LogWriterTest, AFileThatCannotBeCreatedEndsTheWriter) {
  LogOptions options = this->options();
  options.directory += "/missing";
  this->Start(options);
  this->Append(3);
  this->RunUntil([this] { return !this->writer_->status().ok(); });
  EXPECT_EQ(io::ErrorOf(this->failed_), ENOENT);
  EXPECT_NE(this->failed_.message().find("/missing/shard-3-"), std::string::npos);
  this->Append(3);
  EXPECT_EQ(this->writer_->durable(), LogPosition(0));
  EXPECT_EQ(this->writer_->pending_bytes(), 0u);
  EXPECT_EQ(this->failures_, 1);
}

TYPED_TEST(LogWriterTest, TheWriterMayGoWhileItsBatchIsOnTheWay) {
  this->Start(this->options());
  this->Append(1);
  this->Drain();
  this->Append(20);
  ASSERT_TRUE(this->loop_.RunOne());
  this->writer_.reset();
  this->kind_.disk.reset();  // ends what runs
  this->RunAll();
  this->kind_.disk = this->kind_.New();
  const Recovered recovered = Recover(this->blocking(), this->directory());
  ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
  EXPECT_TRUE(recovered.log->next.value == 2 || recovered.log->next.value == 22);
}

TYPED_TEST(LogWriterTest, PendingBytesSayWhenItIsFull) {
  LogOptions options = this->options();
  options.pending_bytes_max = 50'000;
  this->Start(options);
  EXPECT_FALSE(this->writer_->full());
  this->writer_->Append(LogPosition(this->next_++), std::string(60'000, 'x'));
  EXPECT_TRUE(this->writer_->full());
  this->Drain();
  EXPECT_FALSE(this->writer_->full());
}

}  // namespace
}  // namespace forebay::storage
