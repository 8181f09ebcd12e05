#include "node/process_clock.h"

#include <chrono>

namespace forebay::node {
namespace {

constexpr uint64_t kLateMs = 1'000;

uint64_t SteadyMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace

std::atomic<uint64_t> ProcessClock::stood_still_ms_{0};

uint64_t ProcessClock::NowMs() {
  return SteadyMs() - stood_still_ms_.load(std::memory_order_relaxed);
}

void ProcessClock::Tick(uint64_t period_ms) {
  static std::atomic<uint64_t> ticked_ms{0};
  const uint64_t now = SteadyMs(), before = ticked_ms.exchange(now);
  if (before != 0 && now > before + period_ms + kLateMs) {
    stood_still_ms_ += now - before - period_ms;
  }
}

}  // namespace forebay::node
