// What operators ask of rollouts, disks and stored bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/server_control/daemon_client.h"

namespace forebay::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Look : public DaemonTest {
 protected:
  ~Look() override {
    Stop();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  void StartDurable() {
    char folder[] = "/tmp/forebay-look-XXXXXX";
    directory_ = mkdtemp(folder);
    node::Config config;
    config.storage_directory = directory_;
    Start(config);
  }
  // Rollouts of 8 tokens, one a reward, in groups of two.
  void PushAll(const std::vector<double>& rewards) {
    PutSource("math", 2, 100);
    OpenSession();
    const auto acquired = Acquire(static_cast<uint32_t>(rewards.size()));
    ASSERT_EQ(acquired.assignments_size(), static_cast<int>(rewards.size()));
    for (size_t i = 0; i < rewards.size(); ++i) {
      v1::PushFrame frame = Frame(acquired.assignments(static_cast<int>(i)), 8, rewards[i]);
      if (rewards[i] == 0) frame.mutable_rollouts(0)->set_status(v1::ROLLOUT_STATUS_TRUNCATED);
      ASSERT_EQ(PushOne(frame).accepted(), 1u);
    }
  }
  std::string directory_;
};

TEST_F(Look, StorageOfARunInMemoryHasNoFiles) {
  Start();
  PushAll({0, 1});
  const auto seen =
      Good<v1::GetStorageResponse>("AdminService/GetStorage", v1::GetStorageRequest());
  EXPECT_FALSE(seen.durable());
  EXPECT_EQ(seen.disks_size(), 0);
  EXPECT_EQ(seen.machines_size(), 0);
  EXPECT_EQ(seen.payloads(), 2u);
  EXPECT_GT(seen.memory_bytes(), 0u);
  EXPECT_GT(seen.memory_bytes_max(), seen.memory_bytes());
  EXPECT_GT(seen.content_bytes(), 0u);
  EXPECT_EQ(seen.waits_size(), 0);
}

TEST_F(Look, StorageOfADirectoryShowsItsFilesAndDisks) {
  StartDurable();
  PushAll({0, 1});
  const auto seen =
      Good<v1::GetStorageResponse>("AdminService/GetStorage", v1::GetStorageRequest());
  EXPECT_TRUE(seen.durable());
  EXPECT_EQ(seen.directory(), directory_);
  EXPECT_EQ(seen.unknown(), "");
  ASSERT_EQ(seen.disks_size(), 2);
  EXPECT_EQ(seen.disks(0).use(), "logs");
  EXPECT_EQ(seen.disks(1).directory(), directory_ + "/segments");
  for (const auto& disk : seen.disks()) {
    EXPECT_GT(disk.free_bytes(), 0u);
    EXPECT_GE(disk.total_bytes(), disk.free_bytes());
    EXPECT_GT(disk.writes().count(), 0u);
    EXPECT_GT(disk.syncs().count(), 0u);
    EXPECT_GT(disk.syncs().slowest_ms(), 0);
    EXPECT_LE(disk.syncs().recent_ms(), disk.syncs().slowest_ms());
    EXPECT_EQ(disk.errors(), 0u);
  }
  ASSERT_EQ(seen.machines_size(), 3);
  EXPECT_EQ(seen.machines(0).machine(), "ledger");
  EXPECT_EQ(seen.machines(1).machine(), "shard-0");
  EXPECT_EQ(seen.machines(2).machine(), "contents");
  for (const auto& machine : seen.machines()) {
    EXPECT_EQ(machine.log_files(), 1u) << machine.machine();
    EXPECT_GE(machine.log_bytes(), 8192u) << machine.machine();
    EXPECT_GT(machine.pending_bytes_max(), 0u) << machine.machine();
  }
  EXPECT_EQ(seen.payloads(), 2u);
  EXPECT_GT(seen.segments().open(), 0u);
  EXPECT_GT(seen.segments().live_bytes(), 0u);
  EXPECT_EQ(seen.cached_bytes(), seen.memory_bytes());
}

}  // namespace
}  // namespace forebay::server
