// Virtual time: what happens next, in the order of time, and among equals in the order of asking.
//
// Not thread-safe. The same calls give the same order on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace forebay::simulation {

class EventQueue {
 public:
  using Work = std::function<void()>;

  uint64_t now_ms() const { return now_ms_; }
  bool empty() const { return heap_.empty(); }
  // Events that did something.
  uint64_t events() const { return ran_ - idle_; }
  // For an event that finds nothing to do, as a timeout after the answer.
  void Idle() { ++idle_; }

  void After(uint64_t delay_ms, Work work) {
    heap_.push_back({now_ms_ + delay_ms, ++sequence_, std::move(work)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }

  // Moves the time on to the next event and runs it. The queue is not empty.
  void RunNext() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ms_ = event.at_ms;
    ++ran_;
    event.work();
  }

 private:
  struct Event {
    uint64_t at_ms;
    uint64_t sequence;
    Work work;
  };
  static bool Later(const Event& a, const Event& b) {
    return std::pair(a.at_ms, a.sequence) > std::pair(b.at_ms, b.sequence);
  }

  std::vector<Event> heap_;
  uint64_t now_ms_ = 0;
  uint64_t sequence_ = 0;
  uint64_t ran_ = 0;
  uint64_t idle_ = 0;
};

}  // namespace forebay::simulation
