// A daemon that is killed and started again on its directory: the C++ client's calls wait for it,
// and what was acknowledged is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/run_directory.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using client::Assignment;
using ::testing::HasSubstr;

// Kills the daemon, does `work` while it is away, and gives it back meanwhile.
template <class Work>
void WithoutDaemon(Daemon* daemon, Work work) {
  daemon->Kill();
  std::thread back([daemon] { daemon->StartAgain(); });
  work();
  back.join();
}

class RestartTest : public WithBothDisks {};
FOREBAY_WITH_BOTH_DISKS(RestartTest);

TEST_P(RestartTest, PushesUnderOldLeasesAndStepsGoOn) {
  World world(directory_.Flags());
  world.AddSource("math", 2, 2);
  auto actor = world.OpenActor({.actor = "env-0", .sources = {"math"}, .slots = 4});
  auto acquired = actor->Acquire(4, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  ASSERT_EQ(acquired->assignments.size(), 4u);
  std::vector<std::unique_ptr<OwnRollout>> rollouts;
  for (uint32_t i = 0; i < 4; ++i) {
    rollouts.push_back(std::make_unique<OwnRollout>(20 + i, 1000 * i, i % 2));
  }
  const auto push = [&](size_t i) {
    auto receipt = acquired->assignments[i].Push(rollouts[i]->rollout);
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
  };
  push(0);
  WithoutDaemon(&world.daemon, [&] {
    for (size_t i = 1; i < 4; ++i) push(i);
  });

  auto trainer = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  auto step = (*trainer)->OpenStep(1, {.groups = 2, .token_budget = 60});
  ASSERT_TRUE(step.ok()) << step.status();
  const std::string bytes = Fetch(**step);
  EXPECT_FALSE(bytes.empty());
  WithoutDaemon(&world.daemon, [&] { EXPECT_EQ(Fetch(**step), bytes); });
  absl::StatusOr<client::PolicyVersion> made;
  WithoutDaemon(&world.daemon, [&] { made = (*step)->Commit(); });
  ASSERT_TRUE(made.ok()) << made.status();
  WithoutDaemon(&world.daemon, [&] {
    auto again = (*step)->Commit();
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *made);
  });
  ASSERT_TRUE((*trainer)->Publish(*made, "/weights/1", "sum").ok());
  WithoutDaemon(&world.daemon, [&] {
    auto heard = actor->WaitForVersion(1, {.timeout = absl::Seconds(20)});
    ASSERT_TRUE(heard.ok()) << heard.status();
    EXPECT_EQ(heard->where, "/weights/1");
  });
  auto sources = world.admin.ListSources();
  ASSERT_TRUE(sources.ok()) << sources.status();
  EXPECT_EQ((*sources)[0].trained, 4u);
}

TEST_P(RestartTest, AWaitForAssignmentsAndForAStepOutlastsTheDaemon) {
  World world(directory_.Flags());
  world.AddSource("math", 2, 0);
  auto actor = world.OpenActor();
  auto trainer = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  std::thread works([&] {
    for (uint32_t i = 0; i < 2; ++i) {
      auto assignment = actor->Next({.timeout = absl::Seconds(30) * Slowness()});
      ASSERT_TRUE(assignment.ok()) << assignment.status();
      OwnRollout own(30, 1000 * i, i % 2);
      auto receipt = assignment->Push(own.rollout);
      ASSERT_TRUE(receipt.ok()) << receipt.status();
    }
  });
  absl::Status sealed;
  std::thread waits([&] {
    sealed = (*trainer)
                 ->OpenStep(1, {.groups = 1, .token_budget = 60}, {},
                            {.timeout = absl::Seconds(30) * Slowness()})
                 .status();
  });
  const absl::Time killed = absl::Now();
  WithoutDaemon(&world.daemon, [&] {
    const client::TaskSpec task{.external_id = "late", .payload = "{}"};
    EXPECT_TRUE(world.admin.AddTasks("math", {&task, 1}).ok());
  });
  works.join();
  waits.join();
  EXPECT_TRUE(sealed.ok()) << sealed;
  // Left to itself gRPC looks for a lost connection each 5 s.
  EXPECT_LT(absl::Now() - killed, absl::Seconds(4) * Slowness());
}

TEST_P(RestartTest, ATerminatedDaemonLeavesEverySegmentWithItsIndex) {
  World world(directory_.Flags());
  world.AddSource("math", 2, 2);
  auto actor = world.OpenActor({.actor = "env-0", .sources = {"math"}, .slots = 4});
  auto acquired = actor->Acquire(4, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  for (uint32_t i = 0; i < 4; ++i) {
    OwnRollout own(20 + i, 1000 * i, i % 2);
    ASSERT_TRUE(acquired->assignments[i].Push(own.rollout).ok());
  }
  world.daemon.Signal(SIGTERM);
  EXPECT_EQ(world.daemon.Wait(absl::Seconds(30) * Slowness()), 0);
  world.daemon.StartAgain();
  EXPECT_THAT(world.daemon.Log(), HasSubstr("with 4 payloads, 0 without an index"));
}

TEST_P(RestartTest, TasksLoadedAtEachStartTakeNoMoreMemory) {
  auto flags = directory_.Flags();
  flags.push_back("--memory.task_bytes_max=2MiB");
  World world(flags);
  world.AddSource("math", 2, 0);
  const std::string payload(600'000, 'p');
  for (int start = 0; start < 5; ++start) {
    const client::TaskSpec task{.external_id = "large", .payload = payload};
    auto added = world.admin.AddTasks("math", {&task, 1});
    ASSERT_TRUE(added.ok()) << added.status();
    // Refused, and stored by then: dead.
    const client::TaskSpec both[] = {
        {.external_id = absl::StrCat("new-", start), .payload = payload},
        {.external_id = "large", .payload = "another"}};
    EXPECT_FALSE(world.admin.AddTasks("math", both).ok());
    WithoutDaemon(&world.daemon, [] {});
  }
  auto actor = world.OpenActor({.actor = "env-0", .sources = {"math"}, .slots = 1});
  auto acquired = actor->Acquire(1, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  EXPECT_EQ(acquired->assignments[0].info().payload, payload);
}

}  // namespace
}  // namespace forebay::integration
