// A machine with snapshots and truncation whose power fails at every moment of its life, also while
// it recovers: what it was told to be durable is there, and what is there is a prefix of what it
// wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "storage/snapshot_writer.h"
#include "tests/unit/storage_log/log_bench.h"

namespace forebay::storage {
namespace {

std::vector<std::string> ChunksAt(uint64_t position) {
  std::vector<std::string> chunks;
  for (uint64_t i = 0; i <= position % 4; ++i) {
    chunks.push_back(absl::StrCat("state ", position, std::string(i * 700, '.')));
  }
  return chunks;
}

class LogCrashTest : public LogTest<io::MemoryKind> {
 protected:
  LogOptions SmallFiles() const {
    LogOptions small = options();
    small.file_bytes = 30'000;
    small.batch_bytes_max = 12'000;
    return small;
  }
  // What is durable from which event on.
  void NoteDurable() {
    const uint64_t durable = std::max(writer_->durable().value, told_.back().second);
    told_.emplace_back(kind_.volume->events(), durable);
  }
  void WriteSnapshot() {
    const uint64_t position = writer_->durable().value;
    if (position == 0 || snapshots_->busy()) return;
    auto next = [chunks = ChunksAt(position), i = size_t{0}]() mutable -> codec::Piece {
      if (i == chunks.size()) return nullptr;
      return [chunk = chunks[i++]](std::string* to) { to->append(chunk); };
    };
    snapshots_->Write(LogPosition(position), next, [this](absl::StatusOr<LogPosition> keep_from) {
      EXPECT_TRUE(keep_from.ok()) << keep_from.status();
      ++snapshots_written_;
      writer_->TruncateBefore(*keep_from);
    });
  }
  // Lives for so many turns, each of which may append, take a snapshot, or let the disk go on.
  void Live(Prng& prng, int turns) {
    snapshots_ = std::make_unique<SnapshotWriter>(kind_.disk.get(), SmallFiles(), loop_.post(),
                                                  loop_.post());
    for (int turn = 0; turn < turns; ++turn) {
      if (prng.Below(3) == 0) Append(static_cast<int>(prng.Below(5)));
      if (prng.Below(25) == 0) WriteSnapshot();
      for (uint64_t steps = prng.Below(6); steps > 0; --steps) {
        if (!loop_.RunOne() && !Turn(kind_)) break;
        NoteDurable();
      }
    }
  }
  void End() {
    snapshots_.reset();
    writer_.reset();
  }
  // What recovery gives is whole, and a prefix of at least `least` records.
  static void Check(const Recovered& recovered, uint64_t least, uint64_t appended) {
    ASSERT_TRUE(recovered.log.ok()) << recovered.log.status();
    const RecoveredLog& log = *recovered.log;
    ASSERT_GE(log.next.value, least + 1);
    ASSERT_LE(log.next.value, appended + 1);
    ASSERT_TRUE(recovered.dense());
    ASSERT_EQ(log.next.value, log.snapshot.value + log.records + 1);
    if (log.snapshot.value > 0) {
      ASSERT_EQ(recovered.chunks, ChunksAt(log.snapshot.value));
    }
    for (const auto& [position, record] : recovered.records) {
      ASSERT_EQ(record, RecordOf(position)) << position;
    }
  }
  uint64_t DurableAt(uint64_t events) const {
    uint64_t durable = 0;
    for (const auto& [at, told] : told_) {
      if (at <= events) durable = told;
    }
    return durable;
  }
  struct After {
    explicit After(std::shared_ptr<io::MemoryVolume> left) : volume(std::move(left)) {
      disk = std::make_unique<io::MemoryDisk>(volume, time.time(), io::MemoryDiskOptions{});
    }
    Recovered Recover(const std::string& directory) {
      return storage::Recover(Blocking(disk.get(), [this] { return time.RunOne(); }), directory);
    }
    io::ManualTime time;
    std::shared_ptr<io::MemoryVolume> volume;
    std::unique_ptr<io::MemoryDisk> disk;
  };
  // Power fails after each event, and once more during the recovery from that.
  void CheckEveryMoment(Prng& prng, uint64_t appended) {
    for (uint64_t events = 0; events <= kind_.volume->events(); ++events) {
      SCOPED_TRACE(absl::StrCat("after event ", events));
      const uint64_t seed = prng.Next();
      After first(kind_.volume->AfterPowerLoss(events, seed));
      first.volume->Record();
      const Recovered recovered = first.Recover(directory());
      ASSERT_NO_FATAL_FAILURE(Check(recovered, DurableAt(events), appended));
      cut_ += recovered.log->tail_cut ? 1 : 0;
      const uint64_t during = prng.Below(first.volume->events() + 1);
      After second(first.volume->AfterPowerLoss(during, prng.Next()));
      ASSERT_NO_FATAL_FAILURE(Check(second.Recover(directory()), DurableAt(events), appended));
      // What one recovery has given back, the next one gives again.
      After third(first.volume->AfterPowerLoss(first.volume->events(), prng.Next()));
      const Recovered again = third.Recover(directory());
      ASSERT_NO_FATAL_FAILURE(Check(again, recovered.log->next.value - 1, appended));
      ASSERT_EQ(again.log->next, recovered.log->next);
      ASSERT_FALSE(again.log->tail_cut);
    }
  }

  std::vector<std::pair<uint64_t, uint64_t>> told_{{0, 0}};
  std::unique_ptr<SnapshotWriter> snapshots_;
  int snapshots_written_ = 0;
  int cut_ = 0;
};

TEST_F(LogCrashTest, WhatWasDurableIsThereAfterAPowerLossAtEveryMoment) {
  int snapshots = 0, cut = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Prng prng(seed);
    Renew(kind_);
    kind_.volume->Record();
    told_ = {{0, 0}};
    Start(SmallFiles());
    for (int life = 0; life < 3; ++life) {
      Live(prng, 150);
      End();
      static_cast<io::MemoryDisk&>(*kind_.disk).Crash(io::MemoryDisk::CrashKind::kProcess);
      RunAll();
      kind_.disk = kind_.New();
      Recovered recovered = Restart(SmallFiles());
      ASSERT_NO_FATAL_FAILURE(Check(recovered, DurableAt(UINT64_MAX), next_ + 1'000));
      // What recovery gave back is durable as well.
      NoteDurable();
    }
    ASSERT_NO_FATAL_FAILURE(CheckEveryMoment(prng, 100'000));
    End();
    snapshots += snapshots_written_;
    cut += cut_;
    RunAll();
  }
  // The test has seen what it is about.
  EXPECT_GT(snapshots, 10);
  EXPECT_GT(cut, 100);
}

}  // namespace
}  // namespace forebay::storage
