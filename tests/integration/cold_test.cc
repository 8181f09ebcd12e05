// Rollouts with columns that few fetches want: they lie apart, and are read for those alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "forebay/v1/admin.pb.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kGroup = 3;
constexpr uint32_t kTokens = 5'000;
constexpr uint32_t kLayers = 8, kTopK = 4;
constexpr size_t kRow = size_t{kLayers} * kTopK;
constexpr size_t kColdBytes = kTokens * kRow;

// What the token's row of routed_experts holds.
uint8_t ExpertOf(uint32_t token, size_t k) { return static_cast<uint8_t>(token * 7 + k * k); }

std::vector<std::string> Flags(const RunDirectory& directory) {
  std::vector<std::string> flags = directory.Flags();
  flags.push_back("--memory.payload_bytes_max=1MiB");
  return flags;
}

class ColdColumns : public ::testing::Test {
 protected:
  ColdColumns() : world_(Flags(directory_)) { world_.AddSource("math", kGroup, 20); }

  void PushGroups(uint32_t groups) {
    auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = groups * kGroup});
    for (uint32_t left = groups * kGroup; left > 0;) {
      auto acquired = actor->Acquire(left, {.timeout = absl::Seconds(10) * Slowness()});
      ASSERT_TRUE(acquired.ok()) << acquired.status();
      for (auto& assignment : acquired->assignments) {
        OwnRollout own(kTokens, 10'000 * pushed_, (pushed_ + 1) % 2);
        std::vector<uint8_t> experts;
        for (const uint32_t token : own.tokens) {
          for (size_t k = 0; k < kRow; ++k) experts.push_back(ExpertOf(token, k));
        }
        // Where it stands in the actor's list is no matter.
        own.rollout.columns.insert(
            own.rollout.columns.begin(),
            client::MakeColumn<uint8_t>("routed_experts", experts, client::Domain::kToken,
                                        {kLayers, kTopK}));
        ++pushed_;
        auto receipt = assignment.Push(own.rollout);
        ASSERT_TRUE(receipt.ok()) << receipt.status();
        --left;
      }
    }
  }

  std::unique_ptr<client::Step> Open(uint64_t step, uint32_t groups) {
    if (trainer_ == nullptr) {
      auto trainer = client::Trainer::Attach(world_.client.get(), {.trainer = "rank-0"});
      EXPECT_TRUE(trainer.ok()) << trainer.status();
      trainer_ = *std::move(trainer);
    }
    auto opened = trainer_->OpenStep(step, {.groups = groups, .token_budget = 3 * kTokens}, {},
                                     {.timeout = absl::Seconds(30) * Slowness()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  // Holds every row against what was pushed.
  static void CheckRows(const client::MicroBatch& batch) {
    const auto tokens = batch.Find("tokens")->values<uint32_t>();
    const client::FetchedColumn* const experts = batch.Find("routed_experts");
    for (size_t s = 0; s < batch.sequences(); ++s) {
      const auto begin = static_cast<size_t>(batch.cu_seqlens[s]);
      ASSERT_EQ(static_cast<size_t>(batch.cu_seqlens[s + 1]) - begin, size_t{kTokens});
      for (size_t i = 0; i < kTokens; ++i) {
        const uint32_t token = tokens[begin + i];
        ASSERT_EQ(token, tokens[begin] + i);
        for (size_t k = 0; experts != nullptr && k < kRow; ++k) {
          ASSERT_EQ(experts->values<uint8_t>()[(begin + i) * kRow + k], ExpertOf(token, k));
        }
      }
    }
  }

  static absl::Status FetchAll(const client::Step& step, std::vector<std::string> columns,
                               size_t* sequences = nullptr) {
    auto reader = step.Read({.columns = std::move(columns)});
    client::MicroBatch batch;
    auto more = reader->Next(&batch, {.timeout = absl::Seconds(30) * Slowness()});
    for (; more.ok() && *more; more = reader->Next(&batch)) {
      CheckRows(batch);
      if (sequences != nullptr) *sequences += batch.sequences();
    }
    return more.status();
  }

  v1::GetStorageResponse Storage() {
    auto storage =
        world_.Ask<v1::GetStorageResponse>("AdminService/GetStorage", v1::GetStorageRequest());
    EXPECT_TRUE(storage.ok()) << storage.status();
    return storage.ok() ? *storage : v1::GetStorageResponse();
  }

  void Restart() {
    trainer_ = nullptr;
    world_.daemon.Signal(SIGTERM);
    world_.daemon.Wait(absl::Seconds(30) * Slowness());
    world_.daemon.StartAgain();
  }

  // A file that has a row of experts, and where.
  std::pair<fs::path, size_t> FindExperts() const {
    std::string row(kRow, '\0');
    for (size_t k = 0; k < kRow; ++k) row[k] = static_cast<char>(ExpertOf(100, k));
    for (const auto& entry : fs::directory_iterator(directory_.path() + "/segments")) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(file)), {});
      const size_t at = all.find(row);
      if (at != std::string::npos) return {entry.path(), at};
    }
    ADD_FAILURE() << "experts are in no segment";
    return {};
  }

  const RunDirectory directory_;
  World world_;
  std::unique_ptr<client::Trainer> trainer_;
  uint32_t pushed_ = 0;
};

TEST_F(ColdColumns, AreReadBackForWhoWantsThemAlone) {
  PushGroups(4);  // more than there is memory
  const v1::GetStorageResponse before = Storage();
  const uint64_t rollouts = 4 * kGroup;
  EXPECT_GE(before.segments().cold_live_bytes(), rollouts * kColdBytes);
  EXPECT_LT(before.segments().cold_live_bytes(), rollouts * (kColdBytes + 1'000));
  EXPECT_LE(before.memory_bytes(), before.memory_bytes_max());
  EXPECT_GT(before.segments().evicted_bytes(), 0u);

  Restart();  // nothing is in memory now
  auto step = Open(1, 4);
  ASSERT_NE(step, nullptr);
  size_t sequences = 0;
  ASSERT_TRUE(FetchAll(*step, {"tokens", "loss_mask", "logprobs"}, &sequences).ok());
  EXPECT_EQ(sequences, rollouts);
  const v1::GetStorageResponse without = Storage();
  EXPECT_EQ(without.segments().cold_cached_bytes(), 0u);
  EXPECT_LT(without.segments().read_back_bytes(), rollouts * (9 * kTokens + 1'000));

  for (const auto& columns : {std::vector<std::string>{"tokens", "routed_experts"},
                              std::vector<std::string>{"routed_experts", "tokens", "logprobs"}}) {
    sequences = 0;
    const absl::Status fetched = FetchAll(*step, columns, &sequences);
    ASSERT_TRUE(fetched.ok()) << fetched;
    EXPECT_EQ(sequences, rollouts);
  }
  const v1::GetStorageResponse with = Storage();
  EXPECT_GE(with.segments().read_back_bytes(),
            without.segments().read_back_bytes() + rollouts * kColdBytes);
  EXPECT_LE(with.memory_bytes(), with.memory_bytes_max());
  ASSERT_TRUE(FetchAll(*step, {"tokens"}).ok());
  ASSERT_TRUE(step->Commit().ok());
}

TEST_F(ColdColumns, ASingleRolloutIsReadWithThem) {
  PushGroups(1);
  Restart();
  v1::ListRolloutsRequest list;
  const auto listed = world_.Ask<v1::ListRolloutsResponse>("AdminService/ListRollouts", list);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->rollouts_size(), static_cast<int>(kGroup));
  for (const auto& rollout : listed->rollouts()) {
    v1::ReadRolloutRequest request;
    request.set_rollout_id(rollout.rollout_id());
    std::string payload;
    uint64_t bytes = 0;
    do {
      request.set_offset(payload.size());
      request.set_bytes_max(payload.empty() ? 4 * kTokens : 100'000);
      const auto read = world_.Ask<v1::ReadRolloutResponse>("AdminService/ReadRollout", request);
      ASSERT_TRUE(read.ok()) << read.status();
      if (bytes == 0) {
        for (const auto& column : read->header().columns()) bytes += column.bytes();
        EXPECT_EQ(read->header().columns(3).name(), "routed_experts");
      }
      payload += read->data();
    } while (payload.size() < bytes);
    ASSERT_EQ(payload.size(), 9 * kTokens + kColdBytes);
    uint32_t first;
    std::memcpy(&first, payload.data(), sizeof(first));
    for (size_t i = 0; i < kColdBytes; ++i) {
      ASSERT_EQ(static_cast<uint8_t>(payload[9 * kTokens + i]),
                ExpertOf(first + static_cast<uint32_t>(i / kRow), i % kRow));
    }
  }
}

TEST_F(ColdColumns, DamageInThemIsToldAndCostsItsRolloutWhenItIsWanted) {
  PushGroups(2);
  Restart();
  const auto [path, at] = FindExperts();
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('\x55');
    file.put('\x55');
  }
  const Said inspected = RunCtl({"inspect", "segment", path});
  EXPECT_EQ(inspected.code, 10);
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("cold columns of a rollout"), HasSubstr("DAMAGED")));
  auto step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  ASSERT_TRUE(FetchAll(*step, {"tokens"}).ok());
  const absl::Status lost = FetchAll(*step, {"tokens", "routed_experts"});
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr(path.filename().string()), HasSubstr(" at offset "),
                    HasSubstr("cold columns"), HasSubstr("dropped as 'damaged'")));
  step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->plan().totals.rollouts, 2 * kGroup - 1);
  EXPECT_TRUE(FetchAll(*step, {"tokens", "routed_experts"}).ok());
  EXPECT_TRUE(step->Commit().ok());
}

TEST_F(ColdColumns, VerificationLooksAtThem) {
  PushGroups(1);
  const Said online = RunCtl({"--address", world_.daemon.address(), "verify", "--rate", "1000"});
  EXPECT_EQ(online.code, 0) << online.out << online.err;
  world_.daemon.Signal(SIGTERM);
  ASSERT_EQ(world_.daemon.Wait(absl::Seconds(30) * Slowness()), 0);
  const Said whole = RunCtl({"verify", directory_.path()});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  const auto [path, at] = FindExperts();
  fs::remove(path);
  const Said damaged = RunCtl({"verify", directory_.path()});
  EXPECT_EQ(damaged.code, 10) << damaged.out;
  EXPECT_THAT(damaged.out, HasSubstr("cold columns"));
}

}  // namespace
}  // namespace forebay::integration
