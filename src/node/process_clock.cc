#include "node/process_clock.h"

#include <algorithm>
#include <chrono>

#include "base/sync.h"

namespace forebay::node {
namespace {

constexpr uint64_t kLateMs = 1'000;

uint64_t SteadyMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace

std::atomic<uint64_t> ProcessClock::ticked_ms_{0};
std::atomic<uint64_t> ProcessClock::stood_still_ms_{0};
std::atomic<uint64_t> ProcessClock::last_ms_{0};

// Whoever asks first after a standstill notices it: a request that came meanwhile may be looked at
// before the first tick.
uint64_t ProcessClock::NowMs() {
  const uint64_t now = SteadyMs();
  uint64_t ticked = ticked_ms_.load(std::memory_order_acquire);
  if (ticked != 0 && now > ticked + kLateMs) ticked = Notice(now);
  // `now` may be of before a standstill that another thread has noticed.
  return Rise(std::max(now, ticked) - stood_still_ms_.load(std::memory_order_relaxed));
}

// A standstill counts from the last tick, and others may have been told of a later moment before
// it: what they remember must not lie ahead.
uint64_t ProcessClock::Rise(uint64_t now) {
  uint64_t last = last_ms_.load(std::memory_order_relaxed);
  while (now > last) {
    if (last_ms_.compare_exchange_weak(last, now, std::memory_order_relaxed)) return now;
  }
  return last;
}

uint64_t ProcessClock::Notice(uint64_t now) {
  static Mutex mutex;
  MutexLock lock(&mutex);
  const uint64_t ticked = ticked_ms_.load(std::memory_order_relaxed);
  if (now <= ticked + kLateMs) return ticked;
  stood_still_ms_.fetch_add(now - ticked, std::memory_order_relaxed);
  ticked_ms_.store(now, std::memory_order_release);
  return now;
}

void ProcessClock::Tick() {
  NowMs();
  const uint64_t now = SteadyMs();
  uint64_t before = ticked_ms_.load(std::memory_order_relaxed);
  // A standstill between the two lines is the next call's.
  if (before == 0 || (now > before && now <= before + kLateMs)) {
    ticked_ms_.compare_exchange_strong(before, now, std::memory_order_release);
  }
}

}  // namespace forebay::node
