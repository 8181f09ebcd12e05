#include "server/ticker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "absl/time/time.h"
#include "base/sync.h"

namespace forebay::server {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);

TEST(Ticker, CallsAgainAndAgain) {
  Ticker ticker;
  std::atomic<int> calls = 0;
  Notification thrice;
  ticker.Add(1, [&](uint64_t) {
    if (++calls == 3) thrice.Notify();
  });
  ticker.Start();
  EXPECT_TRUE(thrice.WaitFor(kLong));
  ticker.Stop();
}

TEST(Ticker, CallsOnceInTheOrderOfTheirTimes) {
  Ticker ticker;
  std::string order;
  Notification last;
  // Asked before the start, while the thread sleeps, and from within a closure.
  ticker.After(40, [&] {
    order += 'b';
    ticker.After(0, [&] {
      order += 'c';
      last.Notify();
    });
  });
  ticker.Start();
  ticker.After(1, [&] { order += 'a'; });
  EXPECT_TRUE(last.WaitFor(kLong));
  ticker.Stop();
  EXPECT_EQ(order, "abc");
}

TEST(Ticker, StopDropsWhatIsNotDue) {
  Ticker ticker;
  auto held = std::make_shared<int>(1);
  bool called = false;
  ticker.Start();
  ticker.After(3'600'000, [&called, held] { called = true; });
  EXPECT_EQ(held.use_count(), 2);
  ticker.Stop();
  EXPECT_EQ(held.use_count(), 1);
  ticker.After(0, [&called] { called = true; });
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace forebay::server
