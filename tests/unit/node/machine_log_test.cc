// A machine's log over a disk that hangs.
#include "node/machine_log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/memory_disk.h"
#include "shard/messages.h"
#include "shard/state.h"
#include "storage/log_blocking.h"
#include "storage/snapshot_file.h"

namespace forebay::node {
namespace {

class MachineLogTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPendingMax = 64 * 1024;
  static constexpr uint64_t kSnapshotBytes = 512 * 1024;

  MachineLogTest() : disk_(std::make_shared<io::MemoryVolume>(), time_.time(), {}) {
    EXPECT_TRUE(
        storage::Blocking(&disk_, [this] { return time_.RunOne(); }).MakeDirectory("/log").ok());
    const storage::LogOptions options{
        .directory = "/log", .name = "shard-0", .pending_bytes_max = kPendingMax, .nonce = 1};
    const auto post = [this](absl::AnyInvocable<void()> work) { loop_.push_back(std::move(work)); };
    auto writer = std::make_unique<storage::LogWriter>(&disk_, options, LogPosition(1), 1, post,
                                                       storage::LogEvents());
    auto snapshots = std::make_unique<storage::SnapshotWriter>(&disk_, options, post, post);
    auto marker = std::make_unique<storage::LogMarker>(&disk_, options, post);
    log_.emplace(state_, std::move(writer), std::move(snapshots), std::move(marker), kSnapshotBytes,
                 0, [this](const auto& taken) { taken_.push_back(taken); });
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
  void Append() { log_->Append(LogPosition(++appended_), OpenNext()); }
  shard::Command OpenNext() const {
    return shard::OpenSession{SessionId(appended_ % 100), std::string(200, 'a'), "", "", ""};
  }
  std::string State() const {
    std::string bytes;
    codec::Writer writer(&bytes);
    state_.Snapshot(writer);
    return bytes;
  }
  // As a loop does with a command that is committed.
  void AppendAndApply() {
    Append();
    Run();
    shard::Effects effects;
    state_.Apply(OpenNext(), 0, &effects);
    log_->Applied(LogPosition(appended_));
  }

  io::ManualTime time_;
  io::MemoryDisk disk_;
  std::deque<absl::AnyInvocable<void()>> loop_;
  shard::State state_{shard::Options()};
  std::optional<MachineLog<shard::Command, shard::State>> log_;
  uint64_t appended_ = 0;
  std::vector<absl::StatusOr<SnapshotTaken>> taken_;
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

TEST_F(MachineLogTest, ASnapshotIsOfItsMomentWhileTheStateGoesOn) {
  std::map<uint64_t, std::string> states;
  while (taken_.size() < 2) {
    AppendAndApply();
    states[appended_] = State();
    // Before the first piece of a snapshot that has just begun is encoded.
    shard::Effects effects;
    state_.Apply(shard::OpenSession{SessionId(1), "changed", "", "", ""}, 0, &effects);
  }
  ASSERT_TRUE(taken_[1].ok()) << taken_[1].status();
  EXPECT_GT(taken_[1]->copied_bytes, 0u);
  EXPECT_GT(taken_[1]->bytes, 0u);
  EXPECT_GE(taken_[1]->seconds, taken_[1]->pause_seconds);
  storage::SnapshotReader reader(storage::Blocking(&disk_, [this] { return time_.RunOne(); }),
                                 "/log", "shard-0", taken_[1]->position);
  ASSERT_TRUE(reader.Check().ok());
  std::string bytes;
  ASSERT_TRUE(reader
                  .Stream([&bytes](std::string_view chunk) {
                    bytes.append(chunk);
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(bytes, states[taken_[1]->position.value]);
}

TEST_F(MachineLogTest, ASnapshotThatFailsIsSaidAndTheNextOneComes) {
  disk_.Inject(
      {.operation = io::MemoryOperation::kWrite, .path = "/log/snapshot", .error = ENOSPC});
  while (taken_.size() < 2) AppendAndApply();
  EXPECT_EQ(io::ErrorOf(taken_[0].status()), ENOSPC);
  EXPECT_TRUE(taken_[1].ok()) << taken_[1].status();
}

}  // namespace
}  // namespace forebay::node
