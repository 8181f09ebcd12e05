// A shard whose log is damaged: the daemon serves without it, the others fill the steps, and when
// its files are back nothing that was acknowledged is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/ids.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kGroup = 2;
constexpr uint32_t kTokens = 100;
constexpr uint64_t kLogHeaderBytes = 4096;

class AbsentShardTest : public WithBothDisks {
 protected:
  AbsentShardTest() : world_(Flags()) { world_.AddSource("math", kGroup, 40); }
  std::vector<std::string> Flags() const {
    std::vector<std::string> flags = directory_.Flags();
    flags.insert(flags.end(),
                 {"--shards=2", "--steps.shard_absent_after_ms=300", "--shutdown.drain_ms=200ms"});
    return flags;
  }
  fs::path Folder() const { return fs::path(directory_.path()) / "shard-1"; }
  fs::path Copy() const { return fs::path(directory_.path()) / "copy-of-shard-1"; }

  void Stop() {
    world_.daemon.Signal(SIGTERM);
    world_.daemon.Wait(absl::Seconds(30) * Slowness());
  }
  // A bit of what was synced changes while the daemon is down; a copy has it as it was.
  void Damage() {
    Stop();
    DamageLog();
    world_.daemon.StartAgain();
  }
  void DamageLog() {
    fs::copy(Folder(), Copy(), fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(Folder())) {
      if (entry.path().extension() != ".log" || entry.file_size() <= kLogHeaderBytes) continue;
      damaged_ = entry.path().filename();
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(kLogHeaderBytes + 60);
      const auto byte = static_cast<char>(file.get());
      file.seekp(kLogHeaderBytes + 60);
      file.put(static_cast<char>(byte ^ 1));
      break;
    }
    ASSERT_NE(damaged_, "");
  }
  // Of a rollout of the shard that becomes absent, in the store.
  void DamageAToken() {
    const auto of_shard = std::ranges::find(shards_, ShardId(1));
    ASSERT_NE(of_shard, shards_.end());
    const auto rollout = static_cast<uint32_t>(of_shard - shards_.begin());
    const uint32_t tokens[] = {1'000 * rollout + 40, 1'000 * rollout + 41};
    const std::string bytes(reinterpret_cast<const char*>(tokens), sizeof(tokens));
    for (const auto& entry : fs::directory_iterator(directory_.path() + "/segments")) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(file)), {});
      const size_t at = all.find(bytes);
      if (at == std::string::npos) continue;
      file.clear();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(all[at] ^ 0x40));
      return;
    }
    FAIL() << "rollout " << rollout << " is in no segment";
  }
  void AwaitPlannedWithout() {
    const absl::Time until = absl::Now() + absl::Seconds(20) * Slowness();
    std::string said = Ctl({"status"}).out;
    while (said.find("are planned without it") == std::string::npos && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(10));  // poll: nothing tells of it
      said = Ctl({"status"}).out;
    }
    ASSERT_THAT(said, HasSubstr("are planned without it"));
  }
  void PutBack() {
    Stop();
    fs::remove_all(Folder());
    fs::rename(Copy(), Folder());
    world_.daemon.StartAgain();
  }

  // Complete groups: requests, of one group each, begin at one shard after the other.
  void PushGroups(uint32_t groups) {
    auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = groups * kGroup});
    for (uint32_t left = groups * kGroup; left > 0;) {
      auto acquired = actor->Acquire(kGroup, {.timeout = absl::Seconds(10) * Slowness()});
      ASSERT_TRUE(acquired.ok()) << acquired.status();
      for (auto& assignment : acquired->assignments) {
        OwnRollout own(kTokens, 1'000 * pushed_, pushed_ % 2);
        ++pushed_;
        shards_.push_back(AttemptId(assignment.info().attempt_id).shard());
        auto receipt = assignment.Push(own.rollout);
        ASSERT_TRUE(receipt.ok()) << receipt.status();
        ASSERT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
        --left;
      }
    }
  }
  std::unique_ptr<client::Step> Open(uint64_t step, uint32_t groups) {
    auto trainer = client::Trainer::Attach(world_.client.get(), {.trainer = "rank-0"});
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    if (!trainer.ok()) return nullptr;
    trainer_ = *std::move(trainer);
    auto opened = trainer_->OpenStep(step, {.groups = groups, .token_budget = 3 * kTokens}, {},
                                     {.timeout = absl::Seconds(30) * Slowness()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  Said Ctl(std::vector<std::string> words) {
    words.insert(words.begin(), {"--address", world_.daemon.address()});
    return RunCtl(words);
  }
  static absl::Status FetchAll(const client::Step& step) {
    auto reader = step.Read({});
    client::MicroBatch batch;
    auto more = reader->Next(&batch, {.timeout = absl::Seconds(30) * Slowness()});
    while (more.ok() && *more) more = reader->Next(&batch);
    return more.status();
  }
  // Rollouts that are held, reserved or trained.
  uint64_t Accounted() {
    auto sources = world_.admin.ListSources();
    auto status = world_.admin.Status();
    EXPECT_TRUE(sources.ok() && status.ok()) << sources.status() << status.status();
    if (!sources.ok() || !status.ok() || sources->empty()) return 0;
    return status->rollouts_held + sources->at(0).trained;
  }

  World world_;
  std::unique_ptr<client::Trainer> trainer_;
  uint32_t pushed_ = 0;
  std::vector<ShardId> shards_;  // of what was pushed
  std::string damaged_;          // file
};

FOREBAY_WITH_BOTH_DISKS(AbsentShardTest);

TEST_P(AbsentShardTest, TheOthersFillTheStepsAndNothingIsLostOnceItIsBack) {
  PushGroups(12);
  ASSERT_EQ(Accounted(), 12 * kGroup);
  Damage();
  const Said status = Ctl({"status"});
  EXPECT_EQ(status.code, 10) << status.out;
  EXPECT_THAT(status.out, AllOf(HasSubstr("shard-1 is absent"), HasSubstr(damaged_),
                                HasSubstr("offset"), HasSubstr("bring its folder")));
  EXPECT_THAT(Ctl({"storage"}).out, HasSubstr("stay until no shard is absent"));
  const uint64_t there = Accounted();
  ASSERT_GT(there, 0u);
  ASSERT_LT(there, 12 * kGroup) << "shard 1 had nothing: the test shows nothing";

  // More groups than the other shard has ready: it makes the rest.
  const auto ready = static_cast<uint32_t>(there / kGroup);
  PushGroups(4);
  for (uint64_t step = 1; step <= 2; ++step) {
    auto opened = Open(step, (ready + 4) / 2);
    ASSERT_NE(opened, nullptr);
    EXPECT_FALSE(Fetch(*opened).empty());
    ASSERT_TRUE(opened->Commit().ok());
  }
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("planned without it"));
  PutBack();
  EXPECT_THAT(Ctl({"status"}).out, Not(HasSubstr("absent")));
  EXPECT_EQ(Accounted(), 16 * kGroup);
  // What it held all the time is trained now, with its bytes.
  const auto left = static_cast<uint32_t>(12 - ready);
  auto opened = Open(3, left);
  ASSERT_NE(opened, nullptr);
  EXPECT_FALSE(Fetch(*opened).empty());
  EXPECT_TRUE(opened->Commit().ok());
}

TEST_P(AbsentShardTest, ASealedStepIsServedAsItWas) {
  PushGroups(12);
  std::string bytes;
  {
    auto opened = Open(1, 12);
    ASSERT_NE(opened, nullptr);
    bytes = Fetch(*opened);
  }
  Damage();
  AwaitPlannedWithout();
  EXPECT_THAT(Ctl({"status"}).out, HasSubstr("rollouts of it in plans are served from the store"));
  auto opened = Open(1, 12);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->plan().revision, 1u);
  EXPECT_EQ(Fetch(*opened), bytes);
  ASSERT_TRUE(opened->Commit().ok());
  PutBack();
  auto sources = world_.admin.ListSources();
  ASSERT_TRUE(sources.ok()) << sources.status();
  EXPECT_EQ(sources->at(0).trained, 12 * kGroup);
}

TEST_P(AbsentShardTest, ASealedStepWhoseBytesAreLostIsPlannedAnewWithoutIt) {
  PushGroups(12);
  ASSERT_NE(Open(1, 12), nullptr);
  Stop();
  DamageLog();
  DamageAToken();
  world_.daemon.StartAgain();
  AwaitPlannedWithout();
  auto opened = Open(1, 12);
  ASSERT_NE(opened, nullptr);
  ASSERT_EQ(opened->plan().revision, 1u);
  EXPECT_EQ(FetchAll(*opened).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(opened->Commit().status().code(), absl::StatusCode::kDataLoss);
  // What the other shard has of it, and can make.
  PushGroups(static_cast<uint32_t>(std::ranges::count(shards_, ShardId(1))) / kGroup);
  opened = Open(1, 12);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->plan().revision, 2u);
  EXPECT_EQ(opened->plan().totals.rollouts, 12 * kGroup);
  EXPECT_FALSE(Fetch(*opened).empty());
  ASSERT_TRUE(opened->Commit().ok());
  PutBack();
  // All but what is lost is trained, or there to be.
  auto sources = world_.admin.ListSources();
  ASSERT_TRUE(sources.ok()) << sources.status();
  EXPECT_EQ(sources->at(0).trained, 12 * kGroup);
  auto left = Open(2, static_cast<uint32_t>(pushed_ / kGroup - 12));
  ASSERT_NE(left, nullptr);
  EXPECT_EQ(FetchAll(*left).code(), absl::StatusCode::kDataLoss);
}

TEST_P(AbsentShardTest, LeasesOfItGoOnAndPushesUnderThemAreTakenOnceItIsBack) {
  auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = 4});
  // The first request begins at shard 1, the second at shard 0.
  auto of_absent = actor->Acquire(2, {.timeout = absl::Seconds(10) * Slowness()});
  auto of_other = actor->Acquire(2, {.timeout = absl::Seconds(10) * Slowness()});
  ASSERT_TRUE(of_absent.ok() && of_other.ok());
  ASSERT_EQ(of_absent->assignments.size(), 2u);
  ASSERT_EQ(of_other->assignments.size(), 2u);
  const uint64_t attempt = of_absent->assignments[0].info().attempt_id;
  ASSERT_EQ(AttemptId(attempt).shard(), ShardId(1));
  Damage();
  const OwnRollout own(kTokens, 0, 1);
  auto receipt = of_absent->assignments[0].Push(own.rollout);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->result, client::PushResult::kUnknown);
  EXPECT_THAT(receipt->message, HasSubstr("shard-1 is absent"));
  receipt = of_other->assignments[0].Push(own.rollout);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
  // The other one of a call is served, and what is given back needs nobody.
  const client::Actor::LateReward late[] = {
      {attempt, {{"reward", 1}}}, {of_other->assignments[0].info().attempt_id, {{"reward", 1}}}};
  auto rewarded = actor->SetRewards(late);
  ASSERT_TRUE(rewarded.ok()) << rewarded.status();
  EXPECT_EQ((*rewarded)[0], client::PushResult::kUnknown);
  EXPECT_NE((*rewarded)[1], client::PushResult::kUnknown);
  EXPECT_TRUE(of_other->assignments[1].Release().ok());
  PutBack();
  receipt = of_absent->assignments[1].Push(own.rollout);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
}

TEST_P(AbsentShardTest, CallsThatNeedItAreRefusedByNameAndTheOthersAreServed) {
  Damage();
  std::vector<client::TaskSpec> more;
  for (int i = 100; i < 120; ++i) {
    more.push_back({.external_id = absl::StrCat("task-", i), .payload = "{}"});
  }
  const auto tasks = [this] {
    auto sources = world_.admin.ListSources();
    EXPECT_TRUE(sources.ok()) << sources.status();
    return sources->at(0).tasks;
  };
  const uint64_t before = tasks();
  const auto added = world_.admin.AddTasks("math", more);
  EXPECT_EQ(added.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(added.status().message()),
              AllOf(HasSubstr("shard-1 is absent"), HasSubstr("of 20 tasks are left out")));
  EXPECT_GT(tasks(), before);
  PutBack();
  ASSERT_TRUE(world_.admin.AddTasks("math", more).ok());
  EXPECT_EQ(tasks(), 60u);
}

}  // namespace
}  // namespace forebay::integration
