// What goes wrong around the calls: nobody there, a frozen daemon, a broken wire, the end of the
// daemon, a new one without state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using ::testing::HasSubstr;

TEST(FailureTest, NobodyThereIsSaidAtOnceOrAfterTheDeadline) {
  auto client = Connect("127.0.0.1:1");
  client::Admin admin(client.get());
  const auto once = admin.Status({.timeout = absl::Seconds(20), .retry = false});
  EXPECT_EQ(once.status().code(), absl::StatusCode::kUnavailable) << once.status();
  EXPECT_THAT(std::string(once.status().message()), HasSubstr("127.0.0.1:1"));
  const absl::Time began = absl::Now();
  const auto retried = admin.Status({.timeout = absl::Milliseconds(300)});
  EXPECT_EQ(retried.status().code(), absl::StatusCode::kUnavailable) << retried.status();
  EXPECT_LT(absl::Now() - began, absl::Seconds(5) * Slowness());
}

TEST(FailureTest, AFrozenDaemonCostsTheDeadlineAndNoMore) {
  World world;
  ASSERT_TRUE(world.admin.Status().ok());
  world.daemon.Signal(SIGSTOP);
  const absl::Time began = absl::Now();
  auto status = world.admin.Status({.timeout = absl::Milliseconds(200)});
  EXPECT_EQ(status.status().code(), absl::StatusCode::kDeadlineExceeded) << status.status();
  EXPECT_LT(absl::Now() - began, absl::Seconds(5) * Slowness());
  world.daemon.Signal(SIGCONT);
  EXPECT_TRUE(world.admin.Status().ok());
}

TEST(FailureTest, AWaitForAssignmentsIsCancelled) {
  World world;
  world.AddSource("empty", 2, 0);
  auto actor = world.OpenActor();
  client::Cancellation cancellation;
  std::thread canceller([&cancellation] {
    absl::SleepFor(absl::Milliseconds(50));  // poll: any moment of the wait will do
    cancellation.Cancel();
  });
  auto none = actor->Next({.cancellation = &cancellation});
  canceller.join();
  EXPECT_EQ(none.status().code(), absl::StatusCode::kCancelled) << none.status();
  auto acquired = actor->Acquire(1, {.cancellation = &cancellation});
  EXPECT_EQ(acquired.status().code(), absl::StatusCode::kCancelled) << acquired.status();
}

TEST(FailureTest, AWaitForAssignmentsSaysWhyThereAreNone) {
  World world;
  world.AddSource("empty", 2, 0);
  auto actor = world.OpenActor();
  auto none = actor->Next({.timeout = absl::Milliseconds(100)});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("no_tasks"));
}

TEST(FailureTest, ClosingTheActorEndsTheWaitAndStopsTheWork) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor({.actor = "one slot", .slots = 1});
  auto held = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(held.ok()) << held.status();
  absl::Status ended;
  std::thread waiter([&] { ended = actor->Next().status(); });
  actor->Close();
  waiter.join();
  EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled) << ended;
  EXPECT_TRUE(held->stop().cancelled());
  EXPECT_EQ(held->action(), client::LeaseAction::kSavePartial);
  EXPECT_EQ(held->reason(), "closing");
}

TEST(FailureTest, AssignmentsWhoseAnswerWasLostComeAgain) {
  World world;
  Wire wire(world.daemon.address());
  auto through = Connect(wire.address());
  world.AddSource("late", 2, 0);
  auto actor = client::Actor::Open(through.get(), {.actor = "far"});
  ASSERT_TRUE(actor.ok()) << actor.status();
  // The wire breaks while the actor waits; the tasks come meanwhile.
  absl::StatusOr<client::AcquireResult> acquired = absl::UnknownError("not yet");
  std::thread waiter([&] { acquired = (*actor)->Acquire(2, {.timeout = absl::Seconds(20)}); });
  wire.Cut();
  ASSERT_TRUE(world.admin.AddTasks("late", {{.external_id = "a"}}).ok());
  wire.Mend();
  waiter.join();
  ASSERT_TRUE(acquired.ok()) << acquired.status();
  ASSERT_EQ(acquired->assignments.size(), 2u);
  auto sources = world.admin.ListSources();
  ASSERT_TRUE(sources.ok());
  // None was handed out to nobody.
  EXPECT_EQ((*sources)[0].leases, 2u);
}

TEST(FailureTest, FetchingGoesOnAfterALostConnection) {
  World world;
  Wire wire(world.daemon.address());
  auto through = Connect(wire.address());
  world.AddSource("math", 2, 6);
  auto actor = world.OpenActor();
  for (uint32_t i = 0; i < 12; ++i) {
    auto assignment = actor->Next({.timeout = absl::Seconds(10)});
    ASSERT_TRUE(assignment.ok()) << assignment.status();
    OwnRollout own(16, 100 * i, 1);
    ASSERT_TRUE(assignment->Push(own.rollout).ok());
  }
  auto trainer = client::Trainer::Attach(through.get(), {.trainer = "far"});
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  auto step = (*trainer)->OpenStep(1, {.groups = 6, .token_budget = 16}, {},
                                   {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(step.ok()) << step.status();
  auto reader = (*step)->Read({.prefetch = 1});
  client::MicroBatch batch;
  std::set<uint32_t> seen;
  for (int i = 0;; ++i) {
    if (i == 3 || i == 7) {
      wire.Cut();
      wire.Mend();
    }
    auto more = reader->Next(&batch, {.timeout = absl::Seconds(20)});
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
    EXPECT_TRUE(seen.insert(batch.Find("tokens")->values<uint32_t>()[0]).second);
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(FailureTest, TerminationDrainsAndEndsClean) {
  World world({"--shutdown.drain_ms=5000", "--renew.interval_ms=20"});
  world.AddSource("math", 2, 2);
  auto actor = world.OpenActor();
  auto held = actor->Next({.timeout = absl::Seconds(10)});
  ASSERT_TRUE(held.ok()) << held.status();
  world.daemon.Signal(SIGTERM);
  // The actor hears of it with a renewal, and what it has is still taken.
  EXPECT_TRUE(held->stop().Wait(absl::Seconds(10) * Slowness()));
  EXPECT_EQ(held->action(), client::LeaseAction::kSavePartial);
  EXPECT_EQ(held->reason(), "draining");
  OwnRollout own(16, 1, 0);
  own.rollout.rewards.clear();
  auto saved = held->SavePartial(own.rollout, {.timeout = absl::Seconds(5)});
  EXPECT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(world.daemon.Wait(absl::Seconds(20) * Slowness()), 0) << world.daemon.Log();
}

// The attempt that was fetched ahead is given back by a call that nobody answers.
TEST(FailureTest, AnActorClosesSoonAlthoughTheDaemonIsFrozen) {
  World world;
  world.AddSource("math", 2, 2);
  const absl::Time begin = [&world] {
    auto actor = world.OpenActor();
    auto held = actor->Next({.timeout = absl::Seconds(10)});
    EXPECT_TRUE(held.ok()) << held.status();
    world.daemon.Signal(SIGSTOP);
    actor->Close();
    // poll: the call that gives back is on its way
    absl::SleepFor(absl::Milliseconds(200));
    return absl::Now();
  }();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10) * Slowness());
}

TEST(FailureTest, ANewDaemonWithoutStateIsNoticed) {
  World world({"--renew.interval_ms=50"});
  world.AddSource("math", 2, 2);
  auto actor = world.OpenActor();
  const uint64_t run = actor->run();
  auto held = actor->Acquire(1, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(held.ok() && held->assignments.size() == 1) << held.status();
  world.daemon.StartAgain();
  world.AddSource("math", 2, 2);
  auto next = actor->Acquire(1, {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(next.ok() && next->assignments.size() == 1) << next.status();
  EXPECT_NE(actor->run(), run);
  EXPECT_TRUE(held->assignments[0].stop().Wait(absl::Seconds(10) * Slowness()));
  // The attempts of both have one number; the old one is nobody's here.
  OwnRollout old(16, 2, 1);
  const auto receipt = held->assignments[0].Push(old.rollout, {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  EXPECT_EQ(receipt->result, client::PushResult::kLeaseLost) << receipt->message;
  OwnRollout own(16, 1, 1);
  EXPECT_TRUE(next->assignments[0].Push(own.rollout).ok());
}

TEST(FailureTest, LeasesOutlastATimeInWhichTheDaemonStoodStill) {
  World world({"--renew.interval_ms=100"});
  const uint64_t lease_ms = 2'000 * static_cast<uint64_t>(Slowness());
  ASSERT_TRUE(world.admin
                  .PutSource({.name = "math",
                              .group_size = 2,
                              .keep_equal_rewards = true,
                              .lease_min_ms = lease_ms,
                              .lease_max_ms = lease_ms})
                  .ok());
  ASSERT_TRUE(world.admin.AddTasks("math", {{.external_id = "a", .payload = "{}"}}).ok());
  auto actor = world.OpenActor();
  auto held = actor->Acquire(2, {.timeout = absl::Seconds(10)});
  ASSERT_TRUE(held.ok() && held->assignments.size() == 2) << held.status();
  world.daemon.Signal(SIGSTOP);
  absl::SleepFor(2 * absl::Milliseconds(lease_ms));  // poll: as long as it stands still
  world.daemon.Signal(SIGCONT);
  // What was overdue would end at once.
  EXPECT_FALSE(held->assignments[0].stop().Wait(absl::Milliseconds(lease_ms) / 2));
  for (auto& assignment : held->assignments) {
    EXPECT_FALSE(assignment.stop().cancelled()) << assignment.reason() << world.daemon.Log();
    OwnRollout own(16, 1, 1);
    EXPECT_TRUE(assignment.Push(own.rollout, {.timeout = absl::Seconds(20)}).ok());
  }
}

TEST(FailureTest, TheUnixSocketServesTheSame) {
  World world;
  auto client = Connect(world.daemon.unix_address());
  auto status = client::Admin(client.get()).Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->run, world.admin.Status()->run);
}

}  // namespace
}  // namespace forebay::integration
