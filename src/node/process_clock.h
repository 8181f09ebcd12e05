// The milliseconds that the process lived. What it stood still (stopped, or starved of processors)
// does not count: nobody could renew a lease meanwhile, so none is overdue for it.
//
// Thread-safe. The time may step back once, when a standstill is noticed. It is one for the whole
// process.
#pragma once

#include <atomic>
#include <cstdint>

namespace forebay::node {

class ProcessClock {
 public:
  static uint64_t NowMs();
  // Every so many milliseconds. A call that comes over a second late tells of a standstill.
  static void Tick(uint64_t period_ms);

 private:
  static std::atomic<uint64_t> stood_still_ms_;
};

}  // namespace forebay::node
