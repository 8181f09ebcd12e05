// Payloads that are damaged or deleted on the disk: the run goes on without them, and says so.
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
#include "absl/time/clock.h"
#include "tests/integration/run_ctl.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kGroup = 3;
constexpr uint32_t kTokens = 400;

class DamageTest : public WithBothDisks {
 protected:
  DamageTest() : world_(directory_.Flags()) { world_.AddSource("math", kGroup, 20); }

  // Complete groups; the tokens of the n-th rollout of the test begin at 10,000 n.
  void PushGroups(uint32_t groups) {
    auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = groups * kGroup});
    for (uint32_t left = groups * kGroup; left > 0;) {
      auto acquired = actor->Acquire(left, {.timeout = absl::Seconds(10) * Slowness()});
      ASSERT_TRUE(acquired.ok()) << acquired.status();
      for (auto& assignment : acquired->assignments) {
        OwnRollout own(kTokens, 10'000 * pushed_, (pushed_ + 1) % 2);
        ++pushed_;
        auto receipt = assignment.Push(own.rollout);
        ASSERT_TRUE(receipt.ok()) << receipt.status();
        --left;
      }
    }
  }

  std::vector<fs::path> Segments() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory_.path() + "/segments")) {
      files.push_back(entry.path());
    }
    return files;
  }

  // Where the tokens of that rollout stand on the disk.
  void FlipATokenOf(uint32_t rollout) {
    uint32_t tokens[2] = {10'000 * rollout + 100, 10'000 * rollout + 101};
    char bytes[sizeof(tokens)];
    std::memcpy(bytes, tokens, sizeof(tokens));
    for (const fs::path& path : Segments()) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      const std::string all((std::istreambuf_iterator<char>(file)), {});
      const size_t at = all.find(std::string(bytes, sizeof(bytes)));
      if (at == std::string::npos) continue;
      file.clear();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(all[at] ^ 0x40));
      return;
    }
    FAIL() << "rollout " << rollout << " is in no segment";
  }

  void Restart(int signal) {
    world_.daemon.Signal(signal);
    world_.daemon.Wait(absl::Seconds(30) * Slowness());
    world_.daemon.StartAgain();
  }

  std::unique_ptr<client::Step> Open(uint64_t step, uint32_t groups) {
    auto opened = trainer_->OpenStep(step, {.groups = groups, .token_budget = 3 * kTokens}, {},
                                     {.timeout = absl::Seconds(30) * Slowness()});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  void Attach() {
    auto trainer = client::Trainer::Attach(world_.client.get(), {.trainer = "rank-0"});
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
  }

  static absl::Status FetchAll(const client::Step& step) {
    auto reader = step.Read({});
    client::MicroBatch batch;
    auto more = reader->Next(&batch, {.timeout = absl::Seconds(30) * Slowness()});
    while (more.ok() && *more) more = reader->Next(&batch);
    return more.status();
  }

  uint64_t Dropped(const std::string& reason) {
    auto sources = world_.admin.ListSources();
    EXPECT_TRUE(sources.ok()) << sources.status();
    const auto& dropped = sources->at(0).dropped;
    const auto found = dropped.find(reason);
    return found == dropped.end() ? 0 : found->second;
  }
  void AwaitDropped(uint64_t count) {
    const absl::Time until = absl::Now() + absl::Seconds(20) * Slowness();
    while (Dropped("damaged") < count && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(5));  // poll: nothing tells of it
    }
    ASSERT_EQ(Dropped("damaged"), count);
  }
  Said Ctl(std::vector<std::string> words) {
    words.insert(words.begin(), {"--address", world_.daemon.address()});
    return RunCtl(words);
  }
  void ExpectToldOf(uint64_t count) {
    EXPECT_THAT(Ctl({"status"}).out,
                HasSubstr(absl::StrCat("damaged     ", count, count == 1 ? " rollout" : " rollouts",
                                       " dropped")));
    EXPECT_THAT(Ctl({"sources"}).out, HasSubstr(absl::StrCat("damaged ", count)));
  }

  World world_;
  std::unique_ptr<client::Trainer> trainer_;
  uint32_t pushed_ = 0;
};

FOREBAY_WITH_BOTH_DISKS(DamageTest);

TEST_P(DamageTest, AFlippedByteCostsItsRolloutAndTheStepIsPlannedAnew) {
  PushGroups(2);
  Restart(SIGTERM);  // nothing is in memory now
  FlipATokenOf(4);
  Attach();
  auto step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->plan().totals.rollouts, 2 * kGroup);
  const absl::Status lost = FetchAll(*step);
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("step 1: rollout 0x"), HasSubstr(".seg at offset "),
                    HasSubstr("dropped as 'damaged'"), HasSubstr("open the step again")));
  EXPECT_EQ(step->Commit().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(FetchAll(*step).code(), absl::StatusCode::kDataLoss);

  step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->plan().revision, 2u);
  EXPECT_EQ(step->plan().totals.rollouts, 2 * kGroup - 1);
  EXPECT_TRUE(FetchAll(*step).ok());
  EXPECT_TRUE(step->Commit().ok());
  EXPECT_EQ(Dropped("damaged"), 1u);
  ExpectToldOf(1);
  EXPECT_THAT(world_.daemon.Log(), HasSubstr("bytes of a step are lost"));
}

TEST_P(DamageTest, ADeletedSegmentCostsItsRolloutsAndOthersTakeTheirPlace) {
  PushGroups(2);
  Restart(SIGTERM);
  for (const fs::path& path : Segments()) fs::remove(path);
  Attach();
  auto step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(FetchAll(*step).code(), absl::StatusCode::kDataLoss);
  PushGroups(2);
  // What a micro-batch did not hold turns up with the next fetch.
  for (int tries = 0; tries < 10; ++tries) {
    step = Open(1, 2);
    ASSERT_NE(step, nullptr);
    if (FetchAll(*step).ok()) break;
  }
  EXPECT_EQ(step->plan().totals.rollouts, 2 * kGroup);
  EXPECT_TRUE(step->Commit().ok());
  EXPECT_EQ(Dropped("damaged") + Dropped("short"), 2 * kGroup);
}

TEST_P(DamageTest, ASegmentThatIsDeletedWhileItIsWrittenCostsWhatIsInItAndNotTheDaemon) {
  PushGroups(2);
  for (const fs::path& path : Segments()) fs::remove(path);
  const auto named = [this] {
    return Ctl({"status"}).out.find("the store of rollouts is incomplete") != std::string::npos;
  };
  const absl::Time until = absl::Now() + absl::Seconds(30) * Slowness();
  while (!named() && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(100));  // poll: the folder is listed every ten seconds
  }
  ASSERT_TRUE(named()) << Ctl({"status"}).out;
  PushGroups(1);
  ASSERT_FALSE(Segments().empty());
  Restart(SIGKILL);
  AwaitDropped(2 * kGroup);
  ExpectToldOf(2 * kGroup);
  Attach();
  auto step = Open(1, 1);
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->plan().totals.rollouts, kGroup);
  EXPECT_TRUE(FetchAll(*step).ok());
  EXPECT_TRUE(step->Commit().ok());
}

TEST_P(DamageTest, WhatAStartDoesNotFindIsDroppedAtOnce) {
  PushGroups(2);
  world_.daemon.Signal(SIGTERM);
  ASSERT_EQ(world_.daemon.Wait(absl::Seconds(30) * Slowness()), 0);
  for (const fs::path& path : Segments()) fs::remove(path);
  world_.daemon.StartAgain();
  AwaitDropped(2 * kGroup);
  ExpectToldOf(2 * kGroup);
  EXPECT_THAT(world_.daemon.Log(), HasSubstr("dropped as 'damaged'"));
  // And not again at the next start.
  Restart(SIGKILL);
  EXPECT_EQ(Dropped("damaged"), 2 * kGroup);
  PushGroups(1);
  Attach();
  auto step = Open(1, 1);
  ASSERT_NE(step, nullptr);
  EXPECT_TRUE(FetchAll(*step).ok());
  EXPECT_TRUE(step->Commit().ok());
}

TEST_P(DamageTest, AStepThatWasOpenWhenTheDaemonEndedIsPlannedAnewAtTheStart) {
  PushGroups(2);
  Attach();
  auto step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  world_.daemon.Kill();
  for (const fs::path& path : Segments()) fs::remove(path);
  world_.daemon.StartAgain();
  AwaitDropped(2 * kGroup);
  EXPECT_EQ(step->Commit().status().code(), absl::StatusCode::kDataLoss);
  PushGroups(2);
  step = Open(1, 2);
  ASSERT_NE(step, nullptr);
  EXPECT_TRUE(FetchAll(*step).ok());
  EXPECT_TRUE(step->Commit().ok());
}

TEST_P(DamageTest, AnIncompleteGroupIsFilledAgain) {
  auto actor = world_.OpenActor({.actor = "env", .sources = {"math"}, .slots = kGroup});
  auto acquired = actor->Acquire(kGroup, {.timeout = absl::Seconds(10) * Slowness()});
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  OwnRollout own(kTokens, 0, 1);
  ASSERT_TRUE(acquired->assignments[0].Push(own.rollout).ok());
  world_.daemon.Kill();
  for (const fs::path& path : Segments()) fs::remove(path);
  world_.daemon.StartAgain();
  AwaitDropped(1);
  auto again = world_.OpenActor({.actor = "env-2", .sources = {"math"}, .slots = 1});
  auto assignment = again->Next({.timeout = absl::Seconds(10) * Slowness()});
  ASSERT_TRUE(assignment.ok()) << assignment.status();
  EXPECT_EQ(assignment->info().attempt_id, acquired->assignments[0].info().attempt_id);
}

TEST_P(DamageTest, ADirectoryThatIsDeletedEndsTheDaemon) {
  PushGroups(1);
  // The daemon may put a file into a folder that is just being emptied.
  std::error_code error;
  for (int tries = 0; tries < 100 && fs::exists(directory_.path()); ++tries) {
    fs::remove_all(directory_.path(), error);
  }
  EXPECT_EQ(world_.daemon.Wait(absl::Seconds(30) * Slowness()), 5);
  EXPECT_THAT(world_.daemon.Log(), AllOf(HasSubstr("the log has failed, so the daemon ends"),
                                         HasSubstr(directory_.path()), HasSubstr("deleted")));
}

TEST_P(DamageTest, ALogThatLostWholeBatchesAfterACleanEndStopsTheStart) {
  PushGroups(1);
  world_.daemon.Signal(SIGTERM);
  ASSERT_EQ(world_.daemon.Wait(absl::Seconds(30) * Slowness()), 0);
  for (const auto& entry : fs::directory_iterator(directory_.path() + "/shard-0")) {
    if (entry.path().extension() == ".log") fs::resize_file(entry, entry.file_size() - 4096);
  }
  const Said said = RunCtl({"verify", directory_.path()});
  EXPECT_EQ(said.code, 20);
  EXPECT_THAT(said.out, AllOf(HasSubstr("the file ends before record"), HasSubstr("was synced")));
}

TEST_P(DamageTest, AFolderThatIsNotThereStopsTheStart) {
  PushGroups(1);
  world_.daemon.Kill();
  const fs::path folder = directory_.path() + "/segments";
  fs::rename(folder, directory_.path() + "/elsewhere");
  const Said said = RunCtl({"verify", directory_.path()});
  EXPECT_EQ(said.code, 20);
  EXPECT_THAT(said.out, AllOf(HasSubstr("is not there"), HasSubstr("mounted")));
  EXPECT_FALSE(fs::exists(folder));
  fs::rename(directory_.path() + "/elsewhere", folder);
  world_.daemon.StartAgain();
  EXPECT_EQ(Dropped("damaged"), 0u);
}

}  // namespace
}  // namespace forebay::integration
