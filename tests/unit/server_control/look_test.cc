// What operators ask of rollouts, disks and stored bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  std::multiset<double> Rewards(const v1::ListRolloutsRequest& request) {
    std::multiset<double> rewards;
    v1::ListRolloutsRequest next = request;
    do {
      const auto page = Good<v1::ListRolloutsResponse>("AdminService/ListRollouts", next);
      for (const auto& rollout : page.rollouts()) rewards.insert(rollout.reward());
      next.set_page_token(page.page_token());
    } while (!next.page_token().empty());
    return rewards;
  }
  std::string RefusedList(const v1::ListRolloutsRequest& request) {
    return Refused<v1::ListRolloutsResponse>("AdminService/ListRollouts", request);
  }
  v1::RolloutState AnyRollout() {
    return Good<v1::ListRolloutsResponse>("AdminService/ListRollouts", v1::ListRolloutsRequest())
        .rollouts(0);
  }

  std::string directory_;
};

TEST_F(Look, RolloutsAreChosenByRewardAndByFlag) {
  Start();
  PushAll({0, 0.25, 0.5, 1});
  v1::ListRolloutsRequest request;
  request.set_reward_above(0.25);
  EXPECT_EQ(Rewards(request), (std::multiset<double>{0.5, 1}));
  request.set_reward_below(1);
  EXPECT_EQ(Rewards(request), (std::multiset<double>{0.5}));
  request.Clear();
  request.set_reward_min(0.25);
  request.set_reward_max(0.5);
  request.set_page_size(1);
  EXPECT_EQ(Rewards(request), (std::multiset<double>{0.25, 0.5}));
  request.Clear();
  request.add_flags("truncated");
  EXPECT_EQ(Rewards(request), (std::multiset<double>{0}));
  const auto page = Good<v1::ListRolloutsResponse>("AdminService/ListRollouts", request);
  ASSERT_EQ(page.rollouts_size(), 1);
  ASSERT_EQ(page.rollouts(0).flags_size(), 1);
  EXPECT_EQ(page.rollouts(0).flags(0), "truncated");
  request.set_flags(0, "lost");
  EXPECT_THAT(Rewards(request), IsEmpty());
  request.add_flags("unrewarded");
  EXPECT_THAT(Rewards(request), IsEmpty());
  request.add_flags("truncated");
  EXPECT_EQ(Rewards(request), (std::multiset<double>{0}));
}

TEST_F(Look, ABadChoiceIsRefusedByItsField) {
  Start();
  v1::ListRolloutsRequest request;
  request.add_flags("truncated");
  request.add_flags("purple");
  EXPECT_THAT(RefusedList(request), AllOf(HasSubstr("3 flags[1]: is 'purple'"), HasSubstr("lost")));
  request.Clear();
  request.set_reward_below(std::nan(""));
  EXPECT_THAT(RefusedList(request), HasSubstr("3 reward_below: is no number"));
  request.Clear();
  request.set_state("gone");
  EXPECT_THAT(RefusedList(request), HasSubstr("3 state: is 'gone'"));
  request.Clear();
  request.set_source("nowhere");
  EXPECT_THAT(RefusedList(request), HasSubstr("5 source: 'nowhere'"));
}

TEST_F(Look, ARolloutIsReadInPieces) {
  StartDurable();
  PushAll({0, 1});
  v1::ReadRolloutRequest request;
  request.set_rollout_id(AnyRollout().rollout_id());
  auto read = Good<v1::ReadRolloutResponse>("AdminService/ReadRollout", request);
  EXPECT_EQ(read.data(), "");
  EXPECT_EQ(read.rollout().source(), "math");
  ASSERT_EQ(read.header().columns_size(), 2);
  EXPECT_EQ(read.header().columns(0).name(), "tokens");
  EXPECT_EQ(read.header().attempt_id(), read.rollout().attempt_id());
  std::string all(40, 'x');
  all[32] = '\0';
  std::fill(all.begin() + 33, all.end(), '\1');
  request.set_bytes_max(1000);
  EXPECT_EQ(Good<v1::ReadRolloutResponse>("AdminService/ReadRollout", request).data(), all);
  request.set_offset(31);
  request.set_bytes_max(3);
  EXPECT_EQ(Good<v1::ReadRolloutResponse>("AdminService/ReadRollout", request).data(),
            all.substr(31, 3));
  request.set_offset(40);
  EXPECT_EQ(Good<v1::ReadRolloutResponse>("AdminService/ReadRollout", request).data(), "");
  const auto refused = [&] {
    return Refused<v1::ReadRolloutResponse>("AdminService/ReadRollout", request);
  };
  request.set_offset(41);
  EXPECT_THAT(refused(), HasSubstr("3 offset: is 41; the columns have 40 bytes"));
  request.set_bytes_max((4u << 20) + 1);
  EXPECT_THAT(refused(), HasSubstr("3 bytes_max: is 4194305; the limit is 4194304"));
  request.set_bytes_max(1);
  for (const uint64_t unknown : {uint64_t{0}, request.rollout_id() + 100, UINT64_MAX}) {
    request.set_rollout_id(unknown);
    EXPECT_THAT(refused(), HasSubstr("5 rollout_id: ")) << unknown;
  }
}

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

TEST_F(Look, ARunInMemoryHasNothingToVerify) {
  Start();
  v1::VerifyPayloadsRequest request;
  EXPECT_FALSE(Good<v1::VerifyPayloadsResponse>("AdminService/VerifyPayloads", request).running());
  request.set_start(true);
  EXPECT_THAT(Refused<v1::VerifyPayloadsResponse>("AdminService/VerifyPayloads", request),
              AllOf(HasSubstr("9 "), HasSubstr("storage.directory")));
}

TEST_F(Look, EveryPayloadIsVerified) {
  StartDurable();
  PushAll({0, 0.25, 0.5, 1});
  v1::VerifyPayloadsRequest request;
  request.set_start(true);
  request.set_wait_ms(60'000);
  for (int time = 0; time < 2; ++time) {
    const auto done = Good<v1::VerifyPayloadsResponse>("AdminService/VerifyPayloads", request);
    EXPECT_FALSE(done.running());
    EXPECT_EQ(done.payloads(), 4u);
    EXPECT_EQ(done.read_payloads(), 4u);
    EXPECT_EQ(done.read_bytes(), done.payload_bytes());
    EXPECT_EQ(done.damaged() + done.freed(), 0u);
  }
  const auto refused = [&] {
    return Refused<v1::VerifyPayloadsResponse>("AdminService/VerifyPayloads", request);
  };
  request.set_wait_ms(60'001);
  EXPECT_THAT(refused(), HasSubstr("3 wait_ms: is 60001; the limit is 60000"));
  request.set_bytes_per_second(65'535);
  EXPECT_THAT(refused(), HasSubstr("3 bytes_per_second: is 65535; 65536 to "));
}

TEST_F(Look, ASlowVerificationSaysHowFarItIsAndTakesAnotherRate) {
  StartDurable();
  PushAll({0, 0.25, 0.5, 1});
  v1::VerifyPayloadsRequest request;
  request.set_start(true);
  request.set_bytes_per_second(65'536);  // four pages of a record each take a quarter of a second
  const auto begun = Good<v1::VerifyPayloadsResponse>("AdminService/VerifyPayloads", request);
  EXPECT_TRUE(begun.running());
  EXPECT_EQ(begun.payloads(), 4u);
  EXPECT_LT(begun.read_payloads(), 4u);
  request.set_bytes_per_second(uint64_t{1} << 30);
  request.set_wait_ms(60'000);
  const auto done = Good<v1::VerifyPayloadsResponse>("AdminService/VerifyPayloads", request);
  EXPECT_FALSE(done.running());
  EXPECT_EQ(done.read_payloads(), 4u);
  EXPECT_GE(done.took_ms(), 1u);
}

}  // namespace
}  // namespace forebay::server
