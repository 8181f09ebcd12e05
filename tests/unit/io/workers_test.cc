#include "io/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "io/meter.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::io {
namespace {

TEST(Workers, OneThreadKeepsTheOrder) {
  Workers workers(1, "test");
  std::vector<int> ran;
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(workers.Post([&ran, i] { ran.push_back(i); }));
  workers.Stop();
  ASSERT_EQ(ran.size(), 1'000u);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
}

TEST(Workers, RunAsManyAtOnceAsThereAreThreads) {
  Workers workers(3, "test");
  std::atomic<int> inside{0};
  Answers go;
  for (int i = 0; i < 5; ++i) {
    workers.Post([&] {
      if (++inside == 3) go.Count();
      go.Wait();
    });
  }
  workers.Stop();
  EXPECT_EQ(inside, 5);
}

TEST(Workers, NothingIsPostedAfterTheStop) {
  Workers workers(2, "test");
  workers.Stop();
  EXPECT_FALSE(workers.Post([] { FAIL(); }));
}

TEST(Meter, KnowsTheOldestWhateverFinishesFirst) {
  Meter meter;
  Meter::Ticket first, second, third;
  meter.Start(&first);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (meter.use().oldest_ms < 20) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    // poll: until the clock that ages are measured with has moved on
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  meter.Start(&second);
  meter.Start(&third);
  meter.Finish(&second, Meter::Kind::kRead, 10, true);
  EXPECT_GE(meter.use().oldest_ms, 20u);
  meter.Finish(&first, Meter::Kind::kWrite, 7, false);
  EXPECT_LT(meter.use().oldest_ms, 20u);
  EXPECT_EQ(meter.use().in_flight, 1u);
  meter.Finish(&third, Meter::Kind::kSync, 0, true);
  const DiskUse use = meter.use();
  EXPECT_EQ(use.in_flight, 0u);
  EXPECT_EQ(use.oldest_ms, 0u);
  EXPECT_EQ(use.reads, 1u);
  EXPECT_EQ(use.read_bytes, 10u);
  EXPECT_EQ(use.writes, 1u);
  EXPECT_EQ(use.written_bytes, 7u);
  EXPECT_EQ(use.syncs, 1u);
  EXPECT_EQ(use.errors, 1u);
  EXPECT_GE(use.write_time.recent_ms, 20);
  EXPECT_EQ(use.write_time.slowest_ms, use.write_time.recent_ms);
  EXPECT_LT(use.read_time.slowest_ms, use.write_time.slowest_ms);
}

TEST(Meter, AMeanFollowsTheNewestTimesAndTheSlowestStays) {
  Meter meter;
  const auto take = [&meter](uint64_t least_ms) {
    Meter::Ticket ticket;
    meter.Start(&ticket);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(least_ms);
    while (std::chrono::steady_clock::now() < until) {
    }
    meter.Finish(&ticket, Meter::Kind::kSync, 0, true);
    meter.Leave();
  };
  take(30);
  for (int i = 0; i < 1000; ++i) take(0);
  const DiskUse use = meter.use();
  EXPECT_EQ(use.syncs, 1001u);
  EXPECT_GE(use.sync_time.slowest_ms, 30);
  EXPECT_LT(use.sync_time.recent_ms, use.sync_time.slowest_ms / 2);
}

TEST(Meter, WaitsUntilWhoWasToldHasReturned) {
  Meter meter;
  Meter::Ticket ticket;
  meter.Start(&ticket);
  meter.Finish(&ticket, Meter::Kind::kOther, 0, true);
  std::atomic<bool> left{false};
  std::thread teller([&] {
    left = true;
    meter.Leave();
  });
  meter.AwaitIdle();
  EXPECT_TRUE(left);
  teller.join();
}

}  // namespace
}  // namespace forebay::io
