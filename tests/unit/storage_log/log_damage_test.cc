// What is done to a log's files, and what recovery says to it: a bit in any field, bytes cut off or
// added, files gone, faults of the disk.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "storage/log_files.h"
#include "storage/log_format.h"
#include "storage/log_mark.h"
#include "storage/snapshot_writer.h"
#include "tests/unit/storage_log/log_bench.h"

namespace forebay::storage {
namespace {

class LogDamageTest : public LogTest<io::MemoryKind> {
 protected:
  io::MemoryDisk& memory() { return static_cast<io::MemoryDisk&>(*kind_.disk); }
  // So many batches of a record each, of 100 bytes; then the process is gone.
  void WriteBatches(int count, uint64_t file_bytes = uint64_t{64} << 20) {
    LogOptions small = options();
    small.file_bytes = file_bytes;
    Start(small);
    for (int i = 0; i < count; ++i) {
      writer_->Append(LogPosition(next_++), std::string(100, 'r'));
      Drain();
    }
    writer_.reset();
  }
  std::vector<std::string> Files() {
    std::vector<std::string> paths;
    for (const auto& [name, inode] : kind_.volume->FilesIn(directory())) {
      paths.push_back(absl::StrCat(directory(), "/", name));
    }
    return paths;
  }
  std::string PathOf(uint64_t number, uint64_t first) const {
    return absl::StrCat(directory(), "/", LogFileName("shard-3", number, LogPosition(first)));
  }
  uint64_t BytesOf(const std::string& path) {
    return kind_.volume->contents(*kind_.volume->Find(path)).size();
  }
  void Remove(const std::string& path) { ASSERT_TRUE(blocking().Unlink(path).ok()); }
  void CutTo(const std::string& path, uint64_t bytes) {
    const auto file = blocking().Open(path, io::OpenMode::kWrite);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(blocking().Truncate(*file, bytes).ok());
  }
  void Mark(uint64_t position) {
    LogMarker marker(kind_.disk.get(), options(), loop_.post());
    bool done = false;
    marker.Mark(LogPosition(position), [&done] { done = true; });
    RunAll();
    ASSERT_TRUE(done);
  }
  Recovered RecoverNow() { return Recover(blocking(), directory()); }
  // DataLoss that names the file and the offset.
  static void ExpectCorrupt(const Recovered& recovered, const std::string& path, uint64_t offset) {
    ASSERT_TRUE(absl::IsDataLoss(recovered.log.status())) << recovered.log.status();
    const std::string message(recovered.log.status().message());
    EXPECT_NE(message.find(absl::StrCat(path, " at offset ", offset, ":")), std::string::npos)
        << message;
    EXPECT_NE(message.find("bring this file back"), std::string::npos);
  }
};

TEST_F(LogDamageTest, AFileThatLacksWholeBatchesIsCorruptBelowTheMarkAlone) {
  WriteBatches(6);
  Mark(5);
  const std::string path = PathOf(1, 1);
  CutTo(path, 6 * kLogBlock);  // five are left
  EXPECT_EQ(RecoverNow().records.size(), 5u);
  CutTo(path, 5 * kLogBlock);
  ExpectCorrupt(RecoverNow(), path, 5 * kLogBlock);
  EXPECT_EQ(BytesOf(path), 5 * kLogBlock);
  Remove(absl::StrCat(directory(), "/", kLogMarkName));
  EXPECT_EQ(RecoverNow().records.size(), 4u);
}

TEST_F(LogDamageTest, ATornTailBelowTheMarkIsCorruption) {
  WriteBatches(3);
  Mark(3);
  CutTo(PathOf(1, 1), 3 * kLogBlock + 100);
  ExpectCorrupt(RecoverNow(), PathOf(1, 1), 3 * kLogBlock);
}

TEST_F(LogDamageTest, FilesThatAreGoneAreMissedBelowTheMark) {
  WriteBatches(6, 3 * kLogBlock);
  Mark(6);
  const std::vector<std::string> files = Files();
  ASSERT_EQ(files.size(), 4u);  // with the mark
  Remove(files[2]);
  ExpectCorrupt(RecoverNow(), files[1], 3 * kLogBlock);
  Remove(files[1]);
  Remove(files[0]);
  ExpectCorrupt(RecoverNow(), directory(), 0);
}

TEST_F(LogDamageTest, ALastFileWhoseHeaderIsLostIsCorruptBelowTheMark) {
  WriteBatches(1);
  Mark(1);
  CutTo(PathOf(1, 1), 100);
  ExpectCorrupt(RecoverNow(), PathOf(1, 1), 0);
}

TEST_F(LogDamageTest, AMarkThatIsNotRightIsPassedOver) {
  WriteBatches(2);
  Mark(2);
  CutTo(PathOf(1, 1), 2 * kLogBlock);
  const std::string path = absl::StrCat(directory(), "/", kLogMarkName);
  for (uint64_t byte = 0; byte < 35; ++byte) {
    SCOPED_TRACE(absl::StrCat("byte ", byte));
    memory().FlipStoredBit(path, byte, 3);
    const Recovered recovered = RecoverNow();
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    ASSERT_EQ(recovered.log->notes.size(), 1u);
    memory().FlipStoredBit(path, byte, 3);
  }
  ExpectCorrupt(RecoverNow(), PathOf(1, 1), 2 * kLogBlock);
  for (const uint64_t bytes : {0u, 12u, 34u}) {
    CutTo(path, bytes);
    EXPECT_TRUE(RecoverNow().log.ok()) << bytes;
  }
}

TEST_F(LogDamageTest, AMarkRisesAndIsWrittenOnce) {
  WriteBatches(9);
  LogMarker marker(kind_.disk.get(), options(), loop_.post());
  int done = 0;
  for (const uint64_t position : {3u, 5u, 4u, 5u}) {
    marker.Mark(LogPosition(position), [&done] { ++done; });
  }
  RunAll();
  EXPECT_EQ(done, 4);
  const uint64_t writes = kind_.disk->use().writes;
  marker.Mark(LogPosition(5), nullptr);
  RunAll();
  EXPECT_EQ(kind_.disk->use().writes, writes);
  const std::string path = absl::StrCat(directory(), "/", kLogMarkName);
  const auto bytes = kind_.volume->contents(*kind_.volume->Find(path));
  EXPECT_EQ(DecodeLogMark(std::string_view(bytes.data(), bytes.size()), "shard-3").value(),
            LogPosition(5));
}

TEST_F(LogDamageTest, AMarkThatCannotBeWrittenIsLeftToTheNext) {
  WriteBatches(2);
  LogMarker marker(kind_.disk.get(), options(), loop_.post());
  memory().Inject({.operation = io::MemoryOperation::kWrite, .error = EIO});
  int done = 0;
  marker.Mark(LogPosition(1), [&done] { ++done; });
  RunAll();
  EXPECT_EQ(done, 1);
  marker.Mark(LogPosition(2), [&done] { ++done; });
  RunAll();
  EXPECT_EQ(done, 2);
  CutTo(PathOf(1, 1), 2 * kLogBlock);
  ExpectCorrupt(RecoverNow(), PathOf(1, 1), 2 * kLogBlock);
}

TEST_F(LogDamageTest, AFileThatIsDeletedWhileItIsWrittenEndsTheWriter) {
  Start(options());
  Append(1);
  Drain();
  writer_->LookForFile();
  RunAll();
  EXPECT_TRUE(failed_.ok()) << failed_;
  Remove(PathOf(1, 1));
  writer_->LookForFile();
  writer_->LookForFile();
  RunAll();
  EXPECT_EQ(failures_, 1);
  EXPECT_TRUE(absl::IsDataLoss(failed_));
  EXPECT_NE(failed_.message().find(absl::StrCat(directory(), " was deleted or moved away")),
            std::string::npos)
      << failed_;
}

// The batches' fields by their offsets; bytes after the record are padding.
constexpr uint64_t kUsed = LogBatchHead::kBytes + 8 + 100;

TEST_F(LogDamageTest, ABitThatFlipsInASyncedBatchIsCorruption) {
  WriteBatches(3);
  const std::string path = PathOf(1, 1);
  for (uint64_t byte = 0; byte < kUsed; ++byte) {
    SCOPED_TRACE(absl::StrCat("byte ", byte));
    const uint32_t bit = static_cast<uint32_t>(byte % 8);
    memory().FlipStoredBit(path, 2 * kLogBlock + byte, bit);
    ASSERT_NO_FATAL_FAILURE(ExpectCorrupt(RecoverNow(), path, 2 * kLogBlock));
    ASSERT_EQ(BytesOf(path), 4 * kLogBlock);  // nothing is cut
    memory().FlipStoredBit(path, 2 * kLogBlock + byte, bit);
  }
  EXPECT_EQ(RecoverNow().records.size(), 3u);
}

TEST_F(LogDamageTest, ABitThatFlipsInTheLastBatchIsATornTail) {
  for (uint64_t byte = 0; byte < kUsed; byte += 1) {
    SCOPED_TRACE(absl::StrCat("byte ", byte));
    writer_.reset();
    Renew(kind_);
    WriteBatches(2);
    memory().FlipStoredBit(PathOf(1, 1), 2 * kLogBlock + byte, 5);
    const Recovered recovered = RecoverNow();
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    ASSERT_TRUE(recovered.log->tail_cut);
    ASSERT_EQ(recovered.log->next, LogPosition(2));
    ASSERT_EQ(recovered.log->notes.size(), 1u);
    ASSERT_EQ(BytesOf(PathOf(1, 1)), 2 * kLogBlock);
    ASSERT_FALSE(RecoverNow().log->tail_cut);
  }
}

TEST_F(LogDamageTest, ABitThatFlipsInTheHeaderOfAFileWithRecordsIsCorruption) {
  WriteBatches(1);
  const std::string path = PathOf(1, 1);
  for (uint64_t byte = 0; byte < kLogBlock; ++byte) {
    memory().FlipStoredBit(path, byte, 3);
    ASSERT_NO_FATAL_FAILURE(ExpectCorrupt(RecoverNow(), path, 0)) << byte;
    memory().FlipStoredBit(path, byte, 3);
  }
}

TEST_F(LogDamageTest, AFileWithoutAWholeHeaderAndWithoutBatchesIsRemoved) {
  WriteBatches(2);
  Restart(options());
  memory().Inject({.operation = io::MemoryOperation::kSyncDirectory});
  Append(1);
  RunAll();
  writer_.reset();
  ASSERT_EQ(Files().size(), 2u);
  CutTo(PathOf(2, 3), 100);
  const Recovered recovered = RecoverNow();
  ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
  EXPECT_EQ(recovered.log->next, LogPosition(3));
  EXPECT_EQ(recovered.log->file_number, 2u);
  EXPECT_FALSE(recovered.log->tail_cut);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(LogDamageTest, AStartThatAppendsNothingLeavesNoFile) {
  WriteBatches(2);
  for (int start = 0; start < 3; ++start) {
    Restart(options());
    RunAll();
  }
  EXPECT_EQ(Files(), std::vector<std::string>{PathOf(1, 1)});
  EXPECT_EQ(Restart(options()).log->next, LogPosition(3));
}

TEST_F(LogDamageTest, TheLastBatchOfAFileThatAnotherFollowsWasSynced) {
  WriteBatches(6, 2 * kLogBlock);
  const std::string path = PathOf(3, 3);
  memory().FlipStoredBit(path, kLogBlock + 60, 1);
  ASSERT_NO_FATAL_FAILURE(ExpectCorrupt(RecoverNow(), path, kLogBlock));
  memory().FlipStoredBit(path, kLogBlock + 60, 1);
  CutTo(path, kLogBlock);
  ExpectCorrupt(RecoverNow(), path, kLogBlock);
}

TEST_F(LogDamageTest, AMissingFileInTheMiddleIsCorruption) {
  WriteBatches(6, 2 * kLogBlock);
  Remove(PathOf(3, 3));
  const Recovered recovered = RecoverNow();
  ExpectCorrupt(recovered, PathOf(4, 4), 0);
  EXPECT_NE(recovered.log.status().message().find("missing"), std::string::npos);
}

// It may have been created by a writer whose next step, the sync of the directory, failed.
TEST_F(LogDamageTest, AMissingFileWithoutRecordsIsNoLoss) {
  WriteBatches(2);
  Restart(options());
  memory().Inject({.operation = io::MemoryOperation::kSyncDirectory});
  Append(1);
  RunAll();
  ASSERT_EQ(Files().size(), 2u);
  Restart(options());
  Append(1);
  Drain();
  writer_.reset();
  Remove(PathOf(2, 3));
  const Recovered recovered = RecoverNow();
  ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
  EXPECT_EQ(recovered.log->next, LogPosition(4));
  EXPECT_EQ(recovered.log->file_number, 4u);
}

TEST_F(LogDamageTest, AMissingFirstFileIsCorruption) {
  WriteBatches(6, 2 * kLogBlock);
  Remove(PathOf(1, 1));
  ExpectCorrupt(RecoverNow(), PathOf(2, 2), 0);
}

TEST_F(LogDamageTest, AFileUnderAnothersNameIsCorruption) {
  WriteBatches(3, 2 * kLogBlock);
  Remove(PathOf(3, 3));
  ASSERT_TRUE(blocking().Rename(PathOf(2, 2), PathOf(3, 3)).ok());
  Remove(PathOf(1, 1));
  ASSERT_NO_FATAL_FAILURE(ExpectCorrupt(RecoverNow(), PathOf(3, 3), 0));
}

TEST_F(LogDamageTest, ALogThatEndsBelowItsSnapshotIsCorruption) {
  LogOptions small = options();
  small.file_bytes = 2 * kLogBlock;
  Start(small);
  SnapshotWriter snapshots(kind_.disk.get(), small, loop_.post(), loop_.post());
  Append(1);
  Drain();
  Append(1);
  Drain();
  bool written = false;
  snapshots.Write(LogPosition(2), PiecesOf("state"), [&](auto) { written = true; });
  RunUntil([&] { return written; });
  RunAll();
  writer_.reset();
  memory().FlipStoredBit(PathOf(2, 2), kLogBlock, 0);
  ExpectCorrupt(RecoverNow(), PathOf(2, 2), kLogBlock);
  for (const std::string& path : Files()) {
    if (path.ends_with(".log")) Remove(path);
  }
  ExpectCorrupt(RecoverNow(), directory(), 0);
}

TEST_F(LogDamageTest, ABitThatFlipsOnlyWhileItIsReadCutsNothing) {
  WriteBatches(3);
  for (int round = 0; round < 100; ++round) {
    memory().Inject({.what = io::Fault::What::kFlipBit, .operation = io::MemoryOperation::kRead});
    const Recovered recovered = RecoverNow();
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    EXPECT_EQ(recovered.records.size(), 3u);
    EXPECT_FALSE(recovered.log->tail_cut);
  }
}

TEST_F(LogDamageTest, AReadErrorIsHandedOn) {
  WriteBatches(3);
  memory().Inject({.operation = io::MemoryOperation::kRead});
  EXPECT_EQ(io::ErrorOf(RecoverNow().log.status()), EIO);
  EXPECT_EQ(RecoverNow().records.size(), 3u);
}

// --- the writer's faults ---

TEST_F(LogDamageTest, AFailedSyncEndsTheWriterForGood) {
  Start(options());
  Append(2);
  Drain();
  const uint64_t syncs = memory().use().syncs;
  memory().Inject({.operation = io::MemoryOperation::kSync});
  Append(3);
  Drain();
  EXPECT_EQ(io::ErrorOf(failed_), EIO);
  EXPECT_NE(failed_.message().find(PathOf(1, 1)), std::string::npos) << failed_;
  Append(3);
  RunAll();
  EXPECT_EQ(writer_->durable(), LogPosition(2));
  EXPECT_EQ(failures_, 1);
  EXPECT_EQ(memory().use().syncs, syncs + 1);  // not tried again
}

// The kernel takes what a failed sync covered for clean: a later sync writes none of it, though
// reads show it.
TEST_F(LogDamageTest, WhatAFailedSyncLeftIsWrittenAgainBeforeItCounts) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    writer_.reset();
    Renew(kind_);
    kind_.disk = std::make_unique<io::MemoryDisk>(kind_.volume, kind_.time.time(),
                                                  io::MemoryDiskOptions{.seed = seed});
    Start(options());
    Append(2);
    Drain();
    memory().Inject({.operation = io::MemoryOperation::kSync});
    Append(3);
    Drain();
    writer_.reset();
    memory().Crash(io::MemoryDisk::CrashKind::kProcess);
    kind_.disk = kind_.New();
    const Recovered recovered = RecoverNow();
    ASSERT_TRUE(recovered.log.ok());
    ASSERT_EQ(recovered.log->next, LogPosition(6));
    memory().Crash(io::MemoryDisk::CrashKind::kPower);
    kind_.disk = kind_.New();
    const Recovered again = RecoverNow();
    ASSERT_TRUE(again.log.ok()) << again.log.status();
    ASSERT_EQ(again.log->next, LogPosition(6)) << seed;
  }
}

TEST_F(LogDamageTest, AFullDiskEndsTheWriterAndKeepsWhatIsDurable) {
  Start(options());
  Append(2);
  Drain();
  kind_.volume->bytes_max = kind_.volume->used_bytes() + kLogBlock + 100;
  for (int i = 0; i < 10 && failed_.ok(); ++i) {
    writer_->Append(LogPosition(next_++), std::string(3'000, 'x'));
    Drain();
  }
  EXPECT_EQ(io::ErrorOf(failed_), ENOSPC);
  const uint64_t durable = writer_->durable().value;
  kind_.volume->bytes_max = UINT64_MAX;
  const Recovered recovered = Restart(options());
  EXPECT_GE(recovered.log->next.value, durable + 1);
  Append(2);
  Drain();
  EXPECT_TRUE(failed_.ok());
}

TEST_F(LogDamageTest, EveryOperationOfANewFileMayFail) {
  for (const auto operation : {io::MemoryOperation::kOpen, io::MemoryOperation::kWrite,
                               io::MemoryOperation::kSync, io::MemoryOperation::kSyncDirectory}) {
    writer_.reset();
    Renew(kind_);
    LogOptions small = options();
    small.file_bytes = 2 * kLogBlock;
    Start(small);
    Append(1);
    Drain();
    memory().Inject({.operation = operation, .error = EDQUOT});
    Append(1);
    Drain();
    EXPECT_EQ(io::ErrorOf(failed_), EDQUOT);
    EXPECT_EQ(writer_->durable(), LogPosition(1));
    const Recovered recovered = Restart(small);
    EXPECT_EQ(recovered.log->next, LogPosition(2));
    Append(2);
    Drain();
    EXPECT_TRUE(failed_.ok());
  }
}

// --- truncation ---

TEST_F(LogDamageTest, TruncationTakesWholeFilesBelowAndNoMore) {
  WriteBatches(9, 2 * kLogBlock);
  for (uint64_t position = 1; position <= 12; ++position) {
    UnlinkLogFilesBefore(kind_.disk.get(), directory(), "shard-3", LogPosition(position), 9);
    RunAll();
    std::vector<std::string> expected;
    for (uint64_t first = std::min<uint64_t>(position, 9); first <= 9; ++first) {
      expected.push_back(PathOf(first, first));
    }
    EXPECT_EQ(Files(), expected) << position;
  }
}

TEST_F(LogDamageTest, TruncationKeepsTheLastFileUntilTheNextIsDurable) {
  LogOptions small = options();
  small.file_bytes = 2 * kLogBlock;
  Start(small);
  Append(1);
  Drain();
  memory().Inject(
      {.what = io::Fault::What::kHang, .operation = io::MemoryOperation::kSync, .path = "00002-"});
  Append(1);
  RunAll();
  ASSERT_EQ(Files().size(), 2u);
  writer_->TruncateBefore(LogPosition(2));
  RunAll();
  EXPECT_EQ(Files().size(), 2u);
  memory().Heal();
  Drain();
  writer_->TruncateBefore(LogPosition(2));
  RunAll();
  EXPECT_EQ(Files(), (std::vector<std::string>{PathOf(2, 2)}));
}

TEST_F(LogDamageTest, AHungSyncIsWaitedFor) {
  Start(options());
  Append(1);
  Drain();
  memory().Inject({.what = io::Fault::What::kHang, .operation = io::MemoryOperation::kSync});
  Append(1);
  RunAll();
  EXPECT_EQ(writer_->durable(), LogPosition(1));
  Append(5);
  RunAll();
  EXPECT_EQ(writer_->durable(), LogPosition(1));
  memory().Heal();
  Drain();
  EXPECT_EQ(writer_->durable(), LogPosition(7));
}

}  // namespace
}  // namespace forebay::storage
