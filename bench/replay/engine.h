// An engine in virtual time: it asks for assignments as long as it has free slots, generates on all
// of them at once, and pushes what is done.
//
// Not thread-safe. It outlives the events that it asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "bench/replay/workload.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/node.h"

namespace forebay::bench {

class Engine {
 public:
  // `steps` is asked how many were committed. All outlive it.
  Engine(const Workload& workload, uint32_t number, simulation::EventQueue* queue,
         simulation::Node* node, std::function<uint64_t()> steps);

  void Start();
  void Load(PolicyVersion version) { version_ = version; }

  // Since the start, up to now: time without an attempt, and attempts x time.
  double idle_ms() const { return idle_ms_ + (active_.empty() ? Since() : 0); }
  double attempt_ms() const { return attempt_ms_ + Since() * static_cast<double>(active_.size()); }
  uint64_t pushed() const { return pushed_; }
  uint64_t tokens() const { return tokens_; }

 private:
  struct Attempt {
    double end = 0;  // of it in `work_`
    shard::Assignment assignment;
    uint32_t tokens = 0;
    uint64_t began_ms = 0;
    bool operator>(const Attempt& other) const { return end > other.end; }
  };

  double Since() const { return static_cast<double>(queue_.now_ms() - at_ms_); }
  // Brings the work up to now.
  void Advance();
  // The next end of an attempt, at its time.
  void Arm();
  void EndDue();
  void Push(const Attempt& attempt);
  void Ask();

  const Workload& workload_;
  const uint32_t number_;
  simulation::EventQueue& queue_;
  simulation::Node& node_;
  const std::function<uint64_t()> steps_;
  const SessionId session_;
  PolicyVersion version_;
  uint64_t request_ = 0;
  bool asking_ = false;
  std::priority_queue<Attempt, std::vector<Attempt>, std::greater<>> active_;
  double work_ = 0;     // tokens that each attempt has made that has been there since the start
  uint64_t at_ms_ = 0;  // of what `work_` is
  uint64_t turn_ = 0;
  double idle_ms_ = 0, attempt_ms_ = 0;
  uint64_t pushed_ = 0, tokens_ = 0;
};

}  // namespace forebay::bench
