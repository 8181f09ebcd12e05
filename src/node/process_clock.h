// The milliseconds that the process lived. What it stood still (stopped, or starved of processors)
// does not count: nobody could renew a lease meanwhile, so none is overdue for it.
//
// Thread-safe; it never steps back, for all threads together. It is one for the whole process.
#pragma once

#include <atomic>
#include <cstdint>

namespace forebay::node {

class ProcessClock {
 public:
  static uint64_t NowMs();
  // Every some milliseconds, by one thread. More than a second without is a standstill.
  static void Tick();

 private:
  static uint64_t Notice(uint64_t now);
  static uint64_t Rise(uint64_t now);

  static std::atomic<uint64_t> ticked_ms_;
  static std::atomic<uint64_t> stood_still_ms_;
  static std::atomic<uint64_t> last_ms_;  // the latest that anybody was told
};

}  // namespace forebay::node
