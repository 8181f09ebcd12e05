#include <gtest/gtest.h>

#include <thread>

#include "client/usage_meter.h"
#include "forebay/call.h"

namespace forebay::client {
namespace {

TEST(CancellationTest, ActsRunOnceUponCancelAndAtOnceAfterIt) {
  Cancellation cancellation;
  int acts = 0;
  cancellation.OnCancel([&acts] { ++acts; });
  EXPECT_FALSE(cancellation.cancelled());
  cancellation.Cancel();
  cancellation.Cancel();
  EXPECT_EQ(acts, 1);
  EXPECT_TRUE(cancellation.cancelled());
  cancellation.OnCancel([&acts] { ++acts; });
  EXPECT_EQ(acts, 2);
}

TEST(CancellationTest, WhatIsForgottenDoesNotRun) {
  Cancellation cancellation;
  int acts = 0;
  cancellation.Forget(cancellation.OnCancel([&acts] { ++acts; }));
  cancellation.Cancel();
  EXPECT_EQ(acts, 0);
}

TEST(CancellationTest, WaitEndsWithTheCancellationOrTheTime) {
  Cancellation cancellation;
  EXPECT_FALSE(cancellation.Wait(absl::Milliseconds(1)));
  std::thread other([&cancellation] { cancellation.Cancel(); });
  EXPECT_TRUE(cancellation.Wait(absl::Seconds(60)));
  other.join();
}

TEST(UsageMeterTest, CountsTheCpuTimeOfItsScopesOnce) {
  UsageMeter meter;
  volatile uint64_t sum = 0;
  const uint64_t before = meter.Read().cpu_ms;  // of the process, which ran other tests
  {
    const UsageMeter::Scope outer(&meter);
    const UsageMeter::Scope inner(&meter);
    while (meter.Read().cpu_ms < before + 50) {
      for (int i = 0; i < 100'000; ++i) sum = sum + 1;
    }
  }
  const Usage usage = meter.Read();
  EXPECT_GT(usage.library_cpu_ms, 0u);
  // Counted twice it would be more than the process has used.
  EXPECT_LE(usage.library_cpu_ms, usage.cpu_ms + 1);
  EXPECT_GT(usage.resident_bytes, 0u);
}

}  // namespace
}  // namespace forebay::client
