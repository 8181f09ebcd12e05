// Pushes of all sizes, many at once, given up halfway, late, and over a wire that breaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/world.h"

namespace forebay::integration {
namespace {

using client::PushReceipt;

// Assignments of the source, all at once.
std::vector<client::Assignment> Take(client::Actor* actor, uint32_t count) {
  std::vector<client::Assignment> out;
  while (out.size() < count) {
    auto acquired =
        actor->Acquire(count - static_cast<uint32_t>(out.size()), {.timeout = absl::Seconds(10)});
    EXPECT_TRUE(acquired.ok()) << acquired.status();
    if (!acquired.ok() || acquired->assignments.empty()) break;
    for (auto& assignment : acquired->assignments) out.push_back(std::move(assignment));
  }
  EXPECT_EQ(out.size(), count);
  return out;
}

// A rollout with a blob of `bytes` beside its tokens.
struct Large {
  Large(size_t bytes, uint32_t seed) : own(16, seed, 1), blob(bytes, '\0') {
    for (size_t i = 0; i < bytes; ++i) blob[i] = static_cast<char>(i * 2654435761u >> 13);
    own.rollout.columns.push_back({.name = "extra",
                                   .dtype = client::DType::kU8,
                                   .domain = client::Domain::kBlob,
                                   .bytes = blob});
  }
  OwnRollout own;
  std::string blob;
};

TEST(PushTest, FromOneKilobyteTo64MegabytesTheBytesComeBackTheSame) {
  World world;
  // A group of one is never trained, so they come in pairs.
  const std::vector<size_t> sizes = {1 << 10,       100'000,    4 << 20,
                                     (4 << 20) + 1, 20'000'000, 64 << 20};
  world.AddSource("math", 2, static_cast<int>(sizes.size()) / 2);
  auto actor = world.OpenActor();
  auto assignments = Take(actor.get(), static_cast<uint32_t>(sizes.size()));
  ASSERT_EQ(assignments.size(), sizes.size());
  std::vector<std::unique_ptr<Large>> pushed;
  for (size_t i = 0; i < sizes.size(); ++i) {
    pushed.push_back(std::make_unique<Large>(sizes[i], static_cast<uint32_t>(1000 * (i + 1))));
    auto receipt = assignments[i].Push(pushed.back()->own.rollout);
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    EXPECT_EQ(receipt->result, client::PushResult::kAccepted) << receipt->message;
  }
  auto trainer = client::Trainer::Attach(world.client.get(), {.trainer = "rank-0"});
  ASSERT_TRUE(trainer.ok());
  auto step = (*trainer)->OpenStep(
      1, {.groups = static_cast<uint32_t>(sizes.size()) / 2, .token_budget = 16}, {},
      {.timeout = absl::Seconds(20)});
  ASSERT_TRUE(step.ok()) << step.status();
  auto reader = (*step)->Read({.columns = {"tokens", "extra"}});
  client::MicroBatch batch;
  size_t found = 0;
  for (auto more = reader->Next(&batch); more.ok() && *more; more = reader->Next(&batch)) {
    const uint32_t seed = batch.Find("tokens")->values<uint32_t>()[0];
    const Large& large = *pushed.at(seed / 1000 - 1);
    EXPECT_TRUE(batch.Find("extra")->bytes == large.blob) << large.blob.size();
    ++found;
  }
  EXPECT_EQ(found, sizes.size());
}

TEST(PushTest, ManyThreadsShareOneStream) {
  World world;
  constexpr uint32_t kThreads = 8;
  constexpr uint32_t kEach = 25;
  world.AddSource("math", kThreads, kEach);
  auto actor = world.OpenActor({.actor = "many", .slots = 64});
  std::atomic<uint32_t> accepted{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < kEach; ++i) {
        auto assignment = actor->Next({.timeout = absl::Seconds(30)});
        if (!assignment.ok()) return;
        OwnRollout own(16 + i, 1000 * t + i, i % 2);
        auto receipt = assignment->Push(own.rollout);
        if (receipt.ok() && receipt->result == client::PushResult::kAccepted) ++accepted;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(accepted.load(), kThreads * kEach);
  auto sources = world.admin.ListSources();
  ASSERT_TRUE(sources.ok());
  EXPECT_EQ((*sources)[0].rollouts, kThreads * kEach);
  EXPECT_EQ((*sources)[0].groups_ready, kEach);
}

TEST(PushTest, PushesWithoutWaitingAreAnsweredEachOnce) {
  World world;
  world.AddSource("math", 4, 16);
  auto actor = world.OpenActor();
  auto assignments = Take(actor.get(), 64);
  ASSERT_EQ(assignments.size(), 64u);
  std::vector<std::unique_ptr<OwnRollout>> rollouts;
  std::mutex mutex;
  std::condition_variable changed;
  uint32_t accepted = 0;
  for (uint32_t i = 0; i < 64; ++i) {
    rollouts.push_back(std::make_unique<OwnRollout>(16, i, 1));
    assignments[i].PushAsync(rollouts[i]->rollout, [&](absl::StatusOr<PushReceipt> receipt) {
      const std::lock_guard lock(mutex);
      if (receipt.ok() && receipt->result == client::PushResult::kAccepted) ++accepted;
      changed.notify_all();
    });
  }
  // What is on its way needs no assignment any more.
  assignments.clear();
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_until(lock,
                                 absl::ToChronoTime(absl::Now() + absl::Seconds(20) * Slowness()),
                                 [&] { return accepted == 64; }))
      << accepted;
}

TEST(PushTest, TheSamePushAgainIsADuplicate) {
  World world;
  world.AddSource("math", 2, 1);
  auto actor = world.OpenActor();
  auto assignments = Take(actor.get(), 1);
  ASSERT_EQ(assignments.size(), 1u);
  OwnRollout own(16, 5, 1);
  ASSERT_TRUE(assignments[0].Push(own.rollout).ok());
  const std::string before = world.Picture();
  auto again = assignments[0].Push(own.rollout);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->result, client::PushResult::kDuplicate);
  EXPECT_TRUE(again->in());
  EXPECT_TRUE(world.Unchanged(before));
}

// A daemon whose memory holds one large rollout and not two: the second push waits.
class FullTest : public ::testing::Test {
 protected:
  FullTest() : world_({"--memory.payload_bytes_max=16MiB", "--memory.relief_after_ms=3600000"}) {
    world_.AddSource("math", 4, 1);
    actor_ = world_.OpenActor();
    assignments_ = Take(actor_.get(), 3);
    auto receipt = assignments_.at(0).Push(first_.own.rollout);
    EXPECT_TRUE(receipt.ok()) << receipt.status();
  }
  World world_;
  Large first_{8 << 20, 1}, second_{8 << 20, 2};
  std::unique_ptr<client::Actor> actor_;
  std::vector<client::Assignment> assignments_;
};

TEST_F(FullTest, APushThatWaitsForMemoryEndsAtItsDeadline) {
  const std::string before = world_.Picture();
  const absl::Time began = absl::Now();
  auto late = assignments_.at(1).Push(second_.own.rollout, {.timeout = absl::Milliseconds(300)});
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded) << late.status();
  EXPECT_LT(absl::Now() - began, absl::Seconds(5) * Slowness());
  EXPECT_TRUE(world_.Unchanged(before));
  // The stream was mended: a small rollout still fits.
  OwnRollout small(16, 9, 1);
  auto receipt = assignments_.at(2).Push(small.rollout, {.timeout = absl::Seconds(20)});
  EXPECT_TRUE(receipt.ok()) << receipt.status();
}

TEST_F(FullTest, APushThatWaitsForMemoryIsCancelled) {
  const std::string before = world_.Picture();
  client::Cancellation cancellation;
  std::thread canceller([&cancellation] {
    absl::SleepFor(absl::Milliseconds(100));  // poll: any moment of the wait will do
    cancellation.Cancel();
  });
  auto given_up = assignments_.at(1).Push(second_.own.rollout, {.cancellation = &cancellation});
  canceller.join();
  EXPECT_EQ(given_up.status().code(), absl::StatusCode::kCancelled) << given_up.status();
  EXPECT_TRUE(world_.Unchanged(before));
}

TEST_F(FullTest, ClosingTheActorEndsWhatWaits) {
  absl::StatusOr<PushReceipt> result = absl::UnknownError("not answered");
  assignments_.at(1).PushAsync(
      second_.own.rollout, [&result](absl::StatusOr<PushReceipt> receipt) { result = receipt; });
  assignments_.clear();
  actor_.reset();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled) << result.status();
}

TEST(PushWireTest, ALostConnectionCostsNoRolloutAndDoublesNone) {
  World world;
  Wire wire(world.daemon.address());
  auto through = Connect(wire.address());
  constexpr uint32_t kCount = 40;
  world.AddSource("math", 4, kCount / 4);
  auto actor = client::Actor::Open(through.get(), {.actor = "far"});
  ASSERT_TRUE(actor.ok()) << actor.status();
  auto assignments = Take(actor->get(), kCount);
  ASSERT_EQ(assignments.size(), kCount);
  std::vector<std::unique_ptr<Large>> rollouts;
  std::atomic<uint32_t> in{0}, answered{0};
  for (uint32_t i = 0; i < kCount; ++i) {
    rollouts.push_back(std::make_unique<Large>(300'000, i));
    assignments[i].PushAsync(rollouts[i]->own.rollout, [&](absl::StatusOr<PushReceipt> receipt) {
      if (receipt.ok() && receipt->in()) ++in;
      ++answered;
    });
    if (i == 10 || i == 25) {
      wire.Cut();
      wire.Mend();
    }
  }
  const absl::Time until = absl::Now() + absl::Seconds(30) * Slowness();
  while (answered.load() < kCount && absl::Now() < until) {
    absl::SleepFor(absl::Milliseconds(10));  // poll: the pushes are answered
  }
  EXPECT_EQ(in.load(), kCount);
  assignments.clear();
  auto sources = world.admin.ListSources();
  ASSERT_TRUE(sources.ok());
  EXPECT_EQ((*sources)[0].rollouts, kCount);
  EXPECT_EQ((*sources)[0].groups_ready, kCount / 4);
  EXPECT_EQ((*sources)[0].leases, 0u);
}

}  // namespace
}  // namespace forebay::integration
