// How the simulator's disk waits: closures that somebody else's queue of events runs later.
//
// Single-threaded. VirtualTime is what MemoryDisk takes; the simulator makes one over its own
// queue, a test without one uses ManualTime.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace forebay::io {

struct VirtualTime {
  std::function<uint64_t()> now_ms;
  // Runs the closure once, that much later, never at once.
  std::function<void(uint64_t delay_ms, std::function<void()> work)> after;
};

// A queue of its own: by time, then in the order of asking. Must outlive what uses its time().
class ManualTime {
 public:
  VirtualTime time() {
    return {[this] { return now_ms_; },
            [this](uint64_t delay_ms, std::function<void()> work) {
              events_.emplace(std::pair(now_ms_ + delay_ms, ++asked_), std::move(work));
            }};
  }
  uint64_t now_ms() const { return now_ms_; }

  // Moves on to the next event and runs it; false if there is none.
  bool RunOne() {
    if (events_.empty()) return false;
    auto event = events_.extract(events_.begin());
    now_ms_ = event.key().first;
    event.mapped()();
    return true;
  }
  void RunAll() {
    while (RunOne()) {
    }
  }
  // Runs what is due within so much time, which then has passed.
  void Advance(uint64_t ms) {
    const uint64_t until = now_ms_ + ms;
    while (!events_.empty() && events_.begin()->first.first <= until) RunOne();
    now_ms_ = until;
  }

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::function<void()>> events_;
  uint64_t now_ms_ = 0;
  uint64_t asked_ = 0;
};

}  // namespace forebay::io
