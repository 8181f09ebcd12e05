// The simulator's disk: faults, time, and what its owner may rely on. What a crash leaves has its
// own tests.
#include "io/memory_disk.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/io/disk_kinds.h"

namespace forebay::io {
namespace {

class MemoryDiskTest : public DiskTest<MemoryKind> {
 protected:
  MemoryDisk& memory() { return static_cast<MemoryDisk&>(disk()); }
  ManualTime& time() { return kind_.time; }
};

TEST_F(MemoryDiskTest, TheNthOperationOfAKindFails) {
  const FileRef file = Create("a"), other = Create("b");
  for (const int error : {EIO, ENOSPC, EDQUOT, ESTALE}) {
    memory().Inject({.operation = MemoryOperation::kWrite,
                     .path = "/a",
                     .skip = 2,
                     .times = 2,
                     .error = error});
    std::vector<int> errors;
    for (int i = 0; i < 6; ++i) {
      EXPECT_TRUE(Write(other, 0, "x").ok());
      EXPECT_TRUE(Sync(file).ok());
      errors.push_back(ErrorOf(Write(file, 0, "x")));
    }
    EXPECT_EQ(errors, (std::vector<int>{0, 0, error, error, 0, 0}));
  }
  EXPECT_EQ(memory().use().errors, 8u);
}

TEST_F(MemoryDiskTest, AFaultOfAnyKindStrikesWhateverComes) {
  const FileRef file = Create("a");
  memory().Inject({.times = UINT64_MAX});
  EXPECT_EQ(ErrorOf(Write(file, 0, "x")), EIO);
  EXPECT_EQ(ErrorOf(Read(file, 0, 1).status()), EIO);
  EXPECT_EQ(ErrorOf(Sync(file)), EIO);
  EXPECT_EQ(ErrorOf(List(kind_.path()).status()), EIO);
  EXPECT_EQ(ErrorOf(Open(In("b"), OpenMode::kCreate).status()), EIO);
  memory().Heal();
  EXPECT_TRUE(Write(file, 0, "x").ok());
  EXPECT_EQ(ErrorOf(Open(In("b"), OpenMode::kRead).status()), ENOENT);
}

TEST_F(MemoryDiskTest, AFailedWriteLeavesSomeFirstPart) {
  std::set<uint64_t> sizes;
  for (int i = 0; i < 50; ++i) {
    const FileRef file = Create(std::to_string(i));
    memory().Inject({.operation = MemoryOperation::kWrite});
    EXPECT_EQ(ErrorOf(Write(file, 0, "0123456789")), EIO);
    const std::string left = *Read(file, 0, 100);
    EXPECT_EQ(left, std::string("0123456789").substr(0, left.size()));
    sizes.insert(left.size());
  }
  EXPECT_GT(sizes.size(), 5u);
}

TEST_F(MemoryDiskTest, WhatFailedMayHaveHappened) {
  const auto but_happened = [&](MemoryOperation operation) {
    memory().Inject(
        {.what = Fault::What::kFailButHappened, .operation = operation, .error = ETIMEDOUT});
  };
  but_happened(MemoryOperation::kOpen);
  EXPECT_EQ(ErrorOf(Open(In("a"), OpenMode::kCreate).status()), ETIMEDOUT);
  EXPECT_EQ(ErrorOf(Open(In("a"), OpenMode::kCreate).status()), EEXIST);
  but_happened(MemoryOperation::kRename);
  EXPECT_EQ(ErrorOf(Rename("a", "b")), ETIMEDOUT);
  EXPECT_EQ(ErrorOf(Rename("a", "b")), ENOENT);
  const FileRef file = *Open(In("b"), OpenMode::kWrite);
  but_happened(MemoryOperation::kWrite);
  EXPECT_EQ(ErrorOf(Write(file, 0, "text")), ETIMEDOUT);
  EXPECT_EQ(*Read(file, 0, 9), "text");
  but_happened(MemoryOperation::kUnlink);
  EXPECT_EQ(ErrorOf(Unlink("b")), ETIMEDOUT);
  EXPECT_EQ(ErrorOf(Unlink("b")), ENOENT);
}

TEST_F(MemoryDiskTest, HangsUntilItIsHealed) {
  const FileRef file = Create("a");
  int answers = 0;
  memory().Write(file, 0, {{"x", 1}}, [&](absl::Status) { ++answers; });
  memory().Hang();
  memory().Sync(file, [&](absl::Status) { ++answers; });
  for (int i = 0; i < 3; ++i) {
    memory().Rename(In("a"), In("b"), [&](absl::Status) { ++answers; });
  }
  time().RunAll();
  time().Advance(1'000);
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(memory().use().in_flight, 5u);
  EXPECT_GE(memory().use().oldest_ms, 1'000u);
  memory().Heal();
  time().RunAll();
  EXPECT_EQ(answers, 5);
  EXPECT_EQ(memory().use().in_flight, 0u);
}

TEST_F(MemoryDiskTest, OneFileHangsWhileOthersGoOn) {
  const FileRef stuck = Create("stuck"), other = Create("other");
  memory().Inject(
      {.what = Fault::What::kHang, .operation = MemoryOperation::kWrite, .path = "stuck"});
  bool answered = false;
  memory().Write(stuck, 0, {{"x", 1}}, [&](absl::Status) { answered = true; });
  time().RunAll();
  EXPECT_TRUE(Write(other, 0, "x").ok());
  EXPECT_TRUE(Write(stuck, 1, "x").ok());
  EXPECT_FALSE(answered);
  memory().Heal();
  time().RunAll();
  EXPECT_TRUE(answered);
}

TEST_F(MemoryDiskTest, AHungNameHoldsUpTheOnesBehindIt) {
  Create("a");
  memory().Inject({.what = Fault::What::kHang, .operation = MemoryOperation::kRename});
  std::vector<int> order;
  memory().Rename(In("a"), In("b"), [&](absl::Status) { order.push_back(1); });
  memory().Unlink(In("b"), [&](absl::Status status) {
    EXPECT_TRUE(status.ok()) << status;
    order.push_back(2);
  });
  time().RunAll();
  EXPECT_TRUE(order.empty());
  memory().Heal();
  time().RunAll();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(MemoryDiskTest, DataCompletesInAnyOrderAndSlowlyIfToldTo) {
  const FileRef file = Create("a");
  memory().Inject(
      {.what = Fault::What::kDelay, .operation = MemoryOperation::kWrite, .delay_ms = 500});
  const uint64_t begin = time().now_ms();
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) {
    memory().Write(file, 0, {{"x", 1}}, [&, i](absl::Status) { order.push_back(i); });
  }
  time().Advance(100);
  EXPECT_EQ(order.size(), 19u);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  time().RunAll();
  EXPECT_EQ(order.back(), 0);
  EXPECT_GE(time().now_ms(), begin + 500);
}

TEST_F(MemoryDiskTest, FlipsOneBitOfWhatIsReadOrStored) {
  const auto flipped_bits = [](const std::string& a, const std::string& b) {
    int count = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      count += __builtin_popcount(static_cast<unsigned char>(a[i] ^ b[i]));
    }
    return count;
  };
  const FileRef file = Create("a");
  const std::string bytes(1'000, 'x');
  ASSERT_TRUE(Write(file, 0, bytes).ok());
  memory().Inject({.what = Fault::What::kFlipBit, .operation = MemoryOperation::kRead});
  EXPECT_EQ(flipped_bits(*Read(file, 0, 1'000), bytes), 1);
  EXPECT_EQ(*Read(file, 0, 1'000), bytes);  // on the way only
  memory().FlipStoredBit(In("a"), 500, 3);
  const std::string stored = *Read(file, 0, 1'000);
  EXPECT_EQ(stored[500], 'x' ^ 8);
  EXPECT_EQ(flipped_bits(stored, bytes), 1);
  memory().Inject({.what = Fault::What::kFlipBit, .operation = MemoryOperation::kWrite});
  ASSERT_TRUE(Write(file, 0, bytes).ok());
  EXPECT_EQ(flipped_bits(*Read(file, 0, 1'000), bytes), 1);
}

TEST_F(MemoryDiskTest, IsFullAtSoManyBytes) {
  kind_.volume->bytes_max = 1'000;
  const FileRef file = Create("a");
  ASSERT_TRUE(Write(file, 0, std::string(600, 'x')).ok());
  const absl::Status full = Write(file, 600, std::string(600, 'y'));
  EXPECT_EQ(ErrorOf(full), ENOSPC);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*Size(file), 1'000u);  // what there was room for
  EXPECT_EQ(SpaceOf("/")->free_bytes, 0u);
  EXPECT_TRUE(Write(file, 0, std::string(1'000, 'z')).ok());  // over what is there
  const FileRef other = Create("b");
  EXPECT_EQ(ErrorOf(Allocate(other, 10)), ENOSPC);
  EXPECT_TRUE(Truncate(file, 100).ok());
  EXPECT_TRUE(Allocate(other, 500).ok());
  EXPECT_EQ(SpaceOf("/")->free_bytes, 400u);
  EXPECT_TRUE(Write(other, 0, std::string(500, 'x')).ok());
  EXPECT_EQ(SpaceOf("/")->free_bytes, 400u);
}

TEST_F(MemoryDiskTest, AnUnlinkedFileTakesRoomUntilNobodyNeedsIt) {
  kind_.volume->bytes_max = 1'000;
  FileRef file = Create("a");
  ASSERT_TRUE(Write(file, 0, std::string(600, 'x')).ok());
  ASSERT_TRUE(SyncDirectory(kind_.path()).ok());
  ASSERT_TRUE(Unlink("a").ok());
  EXPECT_EQ(kind_.volume->used_bytes(), 600u);
  file.reset();
  EXPECT_EQ(kind_.volume->used_bytes(), 0u);
  // A power loss may bring it back.
  bool back = false;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    MemoryVolume left = *kind_.volume;
    left.Apply({.kind = MemoryVolume::Event::Kind::kPowerLoss, .seed = seed});
    back = back || left.used_bytes() == 600;
  }
  EXPECT_TRUE(back);
  ASSERT_TRUE(SyncDirectory(kind_.path()).ok());
  EXPECT_EQ(kind_.volume->used_bytes(), 0u);
}

TEST_F(MemoryDiskTest, AFileThatAnotherHostUnlinkedIsStale) {
  MemoryDisk remote(kind_.volume, time().time(), {.host = 1, .remote = true});
  FileRef file;
  remote.Open(In("a"), {.mode = OpenMode::kCreate}, [&](auto opened) { file = *opened; });
  time().RunAll();
  ASSERT_TRUE(Unlink("a").ok());
  std::vector<int> errors;
  const auto note = [&](absl::Status status) { errors.push_back(ErrorOf(status)); };
  char byte;
  remote.Write(file, 0, {{"x", 1}}, note);
  remote.Read(file, 0, {&byte, 1}, [&](absl::StatusOr<size_t> read) { note(read.status()); });
  remote.Sync(file, note);
  time().RunAll();
  EXPECT_EQ(errors, (std::vector<int>{ESTALE, ESTALE, ESTALE}));
}

TEST_F(MemoryDiskTest, TheSameSeedGivesTheSameHistory) {
  const auto history = [](uint64_t seed) {
    ManualTime time;
    MemoryDisk disk(std::make_shared<MemoryVolume>(), time.time(),
                    {.seed = seed, .delay_least_ms = 1, .delay_most_ms = 50});
    std::vector<uint64_t> trace;
    disk.Open("/a", {.mode = OpenMode::kCreate}, [&](absl::StatusOr<FileRef> file) {
      for (uint64_t i = 0; i < 50; ++i) {
        disk.Write(*file, i, {{"x", 1}},
                   [&trace, &time, i](absl::Status) { trace.push_back(time.now_ms() * 100 + i); });
      }
    });
    time.RunAll();
    return trace;
  };
  EXPECT_EQ(history(1).size(), 50u);
  EXPECT_EQ(history(1), history(1));
  EXPECT_NE(history(1), history(2));
}

TEST_F(MemoryDiskTest, DestructionEndsWhatRunsAndDropsWhatHangs) {
  const FileRef file = Create("a");
  memory().Inject({.what = Fault::What::kHang, .operation = MemoryOperation::kSync});
  int written = 0, synced = 0, renamed = 0;
  MemoryDisk* disk = &memory();
  memory().Sync(file, [&](absl::Status) { ++synced; });
  memory().Write(file, 0, {{"x", 1}}, [&](absl::Status status) {
    EXPECT_TRUE(status.ok());
    if (++written < 3) disk->Write(file, 1, {{"y", 1}}, [&](absl::Status) { ++written; });
  });
  memory().Rename(In("a"), In("b"), [&](absl::Status) { ++renamed; });
  memory().Rename(In("b"), In("c"), [&](absl::Status) { ++renamed; });
  kind_.disk.reset();
  EXPECT_EQ(written, 2);
  EXPECT_EQ(renamed, 2);
  EXPECT_EQ(synced, 0);
  time().RunAll();  // events of a disk that is gone do nothing
  EXPECT_TRUE(kind_.volume->Find(In("c")).has_value());
}

TEST_F(MemoryDiskTest, AnAnswerMayDestroyTheDisk) {
  const FileRef file = Create("a");
  memory().Write(file, 0, {{"x", 1}}, [&](absl::Status) { kind_.disk.reset(); });
  time().RunAll();
  EXPECT_EQ(kind_.disk, nullptr);
}

TEST_F(MemoryDiskTest, NothingIsAnsweredAfterACrash) {
  const FileRef file = Create("a");
  const auto nobody = [](absl::Status) { FAIL(); };
  memory().Write(file, 0, {{"x", 1}}, nobody);
  memory().Crash(MemoryDisk::CrashKind::kPower);
  memory().Sync(file, nobody);
  memory().Unlink(In("a"), nobody);
  time().RunAll();
  kind_.disk.reset();
}

using MemoryDiskDeathTest = MemoryDiskTest;
TEST_F(MemoryDiskDeathTest, ABufferBelongsToTheDiskUntilTheAnswer) {
  const FileRef file = Create("a");
  std::string bytes = "text";
  memory().Write(file, 0, {{bytes.data(), bytes.size()}}, [](absl::Status) {});
  bytes[0] = 'n';
  EXPECT_DEATH(time().RunAll(), "check failed");
  bytes[0] = 't';
  time().RunAll();
}

}  // namespace
}  // namespace forebay::io
