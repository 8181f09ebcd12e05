// A machine's log over a disk that hangs.
#include "node/machine_log.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>

#include "io/memory_disk.h"
#include "shard/messages.h"
#include "shard/state.h"
#include "storage/log_blocking.h"

namespace forebay::node {
namespace {

class MachineLogTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPendingMax = 64 * 1024;

  MachineLogTest() : disk_(std::make_shared<io::MemoryVolume>(), time_.time(), {}) {
    EXPECT_TRUE(
        storage::Blocking(&disk_, [this] { return time_.RunOne(); }).MakeDirectory("/log").ok());
    const storage::LogOptions options{
        .directory = "/log", .name = "shard-0", .pending_bytes_max = kPendingMax, .nonce = 1};
    const auto post = [this](absl::AnyInvocable<void()> work) { loop_.push_back(std::move(work)); };
    auto writer = std::make_unique<storage::LogWriter>(&disk_, options, LogPosition(1), 1, post,
                                                       storage::LogEvents());
    auto snapshots = std::make_unique<storage::SnapshotWriter>(&disk_, options, post);
    auto marker = std::make_unique<storage::LogMarker>(&disk_, options, post);
    log_.emplace(state_, std::move(writer), std::move(snapshots), std::move(marker),
                 uint64_t{1} << 30, 0);
    Run();
  }
  ~MachineLogTest() override { log_.reset(); }

  void Run() {
    do {
      while (!loop_.empty()) {
        auto work = std::move(loop_.front());
        loop_.pop_front();
        work();
      }
    } while (time_.RunOne() || !loop_.empty());
  }
  void Append() {
    log_->Append(LogPosition(++appended_), shard::OpenSession{SessionId(1), "actor", "", "", ""});
  }

  io::ManualTime time_;
  io::MemoryDisk disk_;
  std::deque<absl::AnyInvocable<void()>> loop_;
  shard::State state_{shard::Options()};
  std::optional<MachineLog<shard::Command, shard::State>> log_;
  uint64_t appended_ = 0;
};

TEST_F(MachineLogTest, SaysThatItIsFullUntilTheDiskGoesOn) {
  Append();
  Run();
  EXPECT_EQ(log_->committed(), LogPosition(1));
  EXPECT_EQ(log_->queue().bytes, 0u);
  disk_.Hang();
  while (!log_->queue().full() && appended_ < 100'000) Append();
  Run();
  EXPECT_TRUE(log_->queue().full());
  EXPECT_GE(log_->queue().bytes, kPendingMax);
  EXPECT_LT(log_->queue().bytes, kPendingMax + 3 * storage::kLogBlock);
  EXPECT_EQ(log_->queue().bytes_max, kPendingMax);
  EXPECT_EQ(log_->committed(), LogPosition(1));
  disk_.Heal();
  Run();
  EXPECT_FALSE(log_->queue().full());
  EXPECT_EQ(log_->queue().bytes, 0u);
  EXPECT_EQ(log_->committed(), LogPosition(appended_));
}

}  // namespace
}  // namespace forebay::node
