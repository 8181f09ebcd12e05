// The clock that counts what the process lived: a standstill is not part of it, whoever asks first.
#include "node/process_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace forebay::node {
namespace {

TEST(ProcessClock, AStandstillDoesNotCountAndTimeNeverStepsBack) {
  // Its input is real time. Longer sleeps than asked for, wherever they fall, count less still: the
  // bound below holds all the same.
  ProcessClock::Tick();
  // Later than the last tick, as most are who ask.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // poll: nothing; time passes
  const uint64_t before = ProcessClock::NowMs();
  const auto real_before = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));  // poll: nothing ticks meanwhile
  std::vector<std::thread> askers;
  std::atomic<uint64_t> latest{0};
  std::atomic<int> steps_back{0};
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&] {
      uint64_t last = before;
      for (int k = 0; k < 10'000; ++k) {
        const uint64_t now = ProcessClock::NowMs();
        if (now < last) ++steps_back;
        last = now;
      }
      uint64_t seen = latest.load();
      while (last > seen && !latest.compare_exchange_weak(seen, last)) {
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  const auto real = std::chrono::steady_clock::now() - real_before;
  EXPECT_EQ(steps_back, 0);
  EXPECT_GE(latest, before);
  // Of what passed, the standstill is missing.
  const auto counted = std::chrono::milliseconds(latest - before);
  EXPECT_LE(counted + std::chrono::milliseconds(1'400), real);
}

}  // namespace
}  // namespace forebay::node
