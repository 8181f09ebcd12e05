// Snapshots: written chunk by chunk, the last two kept, the newest whole one used.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "storage/snapshot_file.h"
#include "storage/snapshot_writer.h"
#include "tests/unit/storage_log/log_bench.h"

namespace forebay::storage {
namespace {

template <class Kind>
class SnapshotTest : public LogTest<Kind> {
 protected:
  // Appends until `position` is durable, and writes a snapshot of so many chunks there.
  absl::StatusOr<LogPosition> SnapshotAt(uint64_t position, int chunks = 3) {
    this->Append(static_cast<int>(position + 1 - this->next_));
    this->Drain();
    return WriteAt(position, chunks);
  }
  absl::StatusOr<LogPosition> WriteAt(uint64_t position, int chunks) {
    if (snapshots_ == nullptr) {
      snapshots_ = std::make_unique<SnapshotWriter>(this->kind_.disk.get(), this->options(),
                                                    this->loop_.post(), this->loop_.post());
    }
    absl::StatusOr<LogPosition> result = absl::UnknownError("never answered");
    bool answered = false;
    asked_ = 0;
    snapshots_->Write(
        LogPosition(position),
        [this, position, chunks]() -> codec::Piece {
          if (asked_ == chunks) return nullptr;
          return [chunk = ChunkOf(position, asked_++)](std::string* to) { to->append(chunk); };
        },
        [&](absl::StatusOr<LogPosition> keep_from) {
          result = keep_from;
          answered = true;
        });
    EXPECT_TRUE(snapshots_->busy());
    this->RunUntil([&] { return answered; });
    EXPECT_FALSE(snapshots_->busy());
    return result;
  }
  static std::string ChunkOf(uint64_t position, int number) {
    return absl::StrCat(position, "/", number,
                        std::string(static_cast<size_t>(number) * 700'000, 's'));
  }
  static std::vector<std::string> ChunksOf(uint64_t position, int count) {
    std::vector<std::string> chunks;
    for (int i = 0; i < count; ++i) chunks.push_back(ChunkOf(position, i));
    return chunks;
  }
  std::vector<LogPosition> Present() {
    return SnapshotsAmong(*this->blocking().List(this->directory()));
  }
  Recovered RecoverNow() { return Recover(this->blocking(), this->directory()); }

  std::unique_ptr<SnapshotWriter> snapshots_;
  int asked_ = 0;
};

using Kinds = testing::Types<io::PoolKind, io::UringKind, io::MemoryKind>;
TYPED_TEST_SUITE(SnapshotTest, Kinds);

TYPED_TEST(SnapshotTest, RecoveryGivesTheSnapshotAndTheRecordsAfterIt) {
  this->Start(this->options());
  EXPECT_EQ(*this->SnapshotAt(10, 5), LogPosition(1));
  this->Append(7);
  this->Drain();
  this->writer_.reset();
  const Recovered recovered = this->RecoverNow();
  ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
  EXPECT_EQ(recovered.log->snapshot, LogPosition(10));
  EXPECT_EQ(recovered.chunks, this->ChunksOf(10, 5));
  EXPECT_EQ(recovered.records.size(), 7u);
  EXPECT_EQ(recovered.records.begin()->first, 11u);
  EXPECT_EQ(recovered.log->next, LogPosition(18));
}

TYPED_TEST(SnapshotTest, AnEmptyStateIsASnapshotToo) {
  this->Start(this->options());
  ASSERT_TRUE(this->SnapshotAt(1, 0).ok());
  this->writer_.reset();
  const Recovered recovered = this->RecoverNow();
  EXPECT_EQ(recovered.log->snapshot, LogPosition(1));
  EXPECT_TRUE(recovered.chunks.empty());
}

TYPED_TEST(SnapshotTest, TheLastTwoAreKeptAndTheLogFromTheOlderOn) {
  LogOptions small = this->options();
  small.file_bytes = 2 * kLogBlock;
  this->Start(small);
  EXPECT_EQ(*this->SnapshotAt(10), LogPosition(1));
  EXPECT_EQ(*this->SnapshotAt(20), LogPosition(11));
  const auto keep_from = this->SnapshotAt(30);
  EXPECT_EQ(*keep_from, LogPosition(21));
  this->writer_->TruncateBefore(*keep_from);
  // The names' operations run in their order, so the truncation's are done by then, once its list
  // is there.
  (void)this->blocking().List(this->directory());
  (void)this->blocking().List(this->directory());
  EXPECT_EQ(this->Present(), (std::vector<LogPosition>{LogPosition(30), LogPosition(20)}));
  this->writer_.reset();
  EXPECT_EQ(this->RecoverNow().log->snapshot, LogPosition(30));
  ASSERT_TRUE(this->blocking()
                  .Unlink(absl::StrCat(this->directory(), "/", SnapshotName(LogPosition(30))))
                  .ok());
  const Recovered older = this->RecoverNow();
  ASSERT_TRUE(older.log.ok()) << older.log.status();
  EXPECT_EQ(older.log->snapshot, LogPosition(20));
  EXPECT_EQ(older.log->next, LogPosition(31));
  const auto entries = this->blocking().List(this->directory());
  for (const io::Entry& entry : *entries) {
    const auto parts = ParseLogFileName(entry.name);
    EXPECT_TRUE(!parts.has_value() || parts->first.value >= 20) << entry.name;
  }
}

TYPED_TEST(SnapshotTest, AnUnfinishedSnapshotIsIgnoredAndRemoved) {
  this->Start(this->options());
  ASSERT_TRUE(this->SnapshotAt(5).ok());
  this->writer_.reset();
  const std::string path =
      absl::StrCat(this->directory(), "/", UnfinishedSnapshotName(LogPosition(9)));
  ASSERT_TRUE(this->blocking().Open(path, io::OpenMode::kCreate).ok());
  EXPECT_EQ(this->RecoverNow().log->snapshot, LogPosition(5));
  EXPECT_FALSE(this->blocking().Open(path, io::OpenMode::kRead).ok());
}

class SnapshotFaultTest : public SnapshotTest<io::MemoryKind> {
 protected:
  io::MemoryDisk& memory() { return static_cast<io::MemoryDisk&>(*kind_.disk); }
  std::string PathOf(uint64_t position) const {
    return absl::StrCat(directory(), "/", SnapshotName(LogPosition(position)));
  }
};

TEST_F(SnapshotFaultTest, ADamagedByteAnywhereLetsTheOlderOneStandIn) {
  Start(options());
  ASSERT_TRUE(SnapshotAt(4, 1).ok());
  ASSERT_TRUE(SnapshotAt(8, 1).ok());
  Append(2);
  Drain();
  writer_.reset();
  const std::string whole = kind_.volume->contents(*kind_.volume->Find(PathOf(8)));
  ASSERT_EQ(whole.size(), SnapshotHead::kBytes + 8 + 3 + 8 + SnapshotTotals::kFooterBytes);
  for (uint64_t byte = 0; byte < whole.size(); ++byte) {
    SCOPED_TRACE(absl::StrCat("byte ", byte));
    memory().FlipStoredBit(PathOf(8), byte, static_cast<uint32_t>(byte % 8));
    const Recovered recovered = RecoverNow();
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    ASSERT_EQ(recovered.log->snapshot, LogPosition(4));
    ASSERT_EQ(recovered.chunks, ChunksOf(4, 1));
    ASSERT_EQ(recovered.log->next, LogPosition(11));
    ASSERT_EQ(recovered.log->notes.size(), 1u);
    ASSERT_NE(recovered.log->notes[0].find(PathOf(8)), std::string::npos);
    // Put aside, it is not taken for one that can stand in for another.
    ASSERT_EQ(Present(), (std::vector<LogPosition>{LogPosition(4)}));
    ASSERT_TRUE(blocking().Rename(PathOf(8) + ".damaged", PathOf(8)).ok());
    memory().FlipStoredBit(PathOf(8), byte, static_cast<uint32_t>(byte % 8));
  }
  for (uint64_t size = 0; size < whole.size(); ++size) {
    const std::string copy = absl::StrCat(directory(), "/copy");
    auto file = blocking().Open(copy, io::OpenMode::kCreate);
    ASSERT_TRUE(blocking().Write(*file, 0, std::string_view(whole).substr(0, size)).ok());
    ASSERT_TRUE(blocking().Rename(copy, PathOf(8)).ok());
    ASSERT_EQ(RecoverNow().log->snapshot, LogPosition(4)) << size;
  }
}

TEST_F(SnapshotFaultTest, WithoutTheLogOfTheOlderOneItIsCorruption) {
  LogOptions small = options();
  small.file_bytes = 2 * kLogBlock;
  Start(small);
  ASSERT_TRUE(SnapshotAt(4).ok());
  ASSERT_TRUE(SnapshotAt(8).ok());
  Append(1);
  Drain();
  writer_->TruncateBefore(LogPosition(9));
  RunAll();
  writer_.reset();
  memory().FlipStoredBit(PathOf(8), 200, 1);
  const absl::Status status = RecoverNow().log.status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.message().find("no file has record 5"), std::string::npos) << status;
  EXPECT_NE(status.message().find(PathOf(8)), std::string::npos) << status;
}

TEST_F(SnapshotFaultTest, EveryOperationMayFailAndTheOlderOneStays) {
  Start(options());
  ASSERT_TRUE(SnapshotAt(5).ok());
  for (const auto operation :
       {io::MemoryOperation::kOpen, io::MemoryOperation::kWrite, io::MemoryOperation::kSync,
        io::MemoryOperation::kRename, io::MemoryOperation::kSyncDirectory}) {
    memory().Inject({.operation = operation, .path = "", .error = ENOSPC});
    const auto result = WriteAt(5 + static_cast<uint64_t>(operation), 3);
    EXPECT_EQ(io::ErrorOf(result.status()), ENOSPC);
    RunAll();
    const auto entries = blocking().List(directory());
    for (const io::Entry& entry : *entries) {
      EXPECT_FALSE(entry.name.ends_with(".tmp")) << entry.name;
    }
  }
  // And then it works again.
  EXPECT_TRUE(SnapshotAt(30).ok());
}

TEST_F(SnapshotFaultTest, ChunksAreAskedForOneByOne) {
  Start(options());
  ASSERT_TRUE(SnapshotAt(2).ok());
  memory().Inject({.what = io::Fault::What::kHang,
                   .operation = io::MemoryOperation::kWrite,
                   .path = "snapshot",
                   .skip = 2});
  int asked = 0;
  bool answered = false;
  snapshots_->Write(
      LogPosition(2),
      [&]() -> codec::Piece {
        if (++asked == 6) return nullptr;
        return [](std::string* to) { *to = "chunk"; };
      },
      [&](absl::StatusOr<LogPosition> keep_from) { answered = keep_from.ok(); });
  RunAll();
  EXPECT_EQ(asked, 2);  // the head, a chunk, and the one that hangs
  memory().Heal();
  RunAll();
  EXPECT_TRUE(answered);
  EXPECT_EQ(asked, 6);
}

TEST_F(SnapshotFaultTest, APieceWithoutBytesIsNoChunk) {
  Start(options());
  Append(2);
  Drain();
  SnapshotWriter snapshots(kind_.disk.get(), this->options(), loop_.post(), loop_.post());
  int asked = 0;
  bool answered = false;
  snapshots.Write(
      LogPosition(2),
      [&]() -> codec::Piece {
        if (++asked == 6) return nullptr;
        return [asked](std::string* to) { to->append(asked % 2 == 0 ? "chunk" : ""); };
      },
      [&](absl::StatusOr<LogPosition> keep_from) { answered = keep_from.ok(); });
  RunAll();
  EXPECT_TRUE(answered);
  writer_.reset();
  EXPECT_EQ(RecoverNow().chunks, (std::vector<std::string>{"chunk", "chunk"}));
}

TEST_F(SnapshotFaultTest, ItsWriterMayGoAtAnyMoment) {
  for (int steps = 0; steps < 40; ++steps) {
    Renew(kind_);
    Start(options());
    snapshots_ = nullptr;
    ASSERT_TRUE(SnapshotAt(5, 2).ok());
    Append(3);
    Drain();
    snapshots_->Write(LogPosition(8), storage::PiecesOf(std::string(5'000, 'c'), 1'000),
                      [](absl::StatusOr<LogPosition>) {});
    for (int i = 0; i < steps; ++i) {
      if (!loop_.RunOne()) Turn(kind_);
    }
    snapshots_.reset();
    writer_.reset();
    RunAll();
    const Recovered recovered = RecoverNow();
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    EXPECT_TRUE(recovered.log->snapshot.value == 5 || recovered.log->snapshot.value == 8);
    EXPECT_EQ(recovered.log->next, LogPosition(9));
  }
}

}  // namespace
}  // namespace forebay::storage
