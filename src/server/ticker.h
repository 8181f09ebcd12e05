// One thread that calls closures again and again, for what must be looked at although nobody calls,
// and others once, a while later.
//
// Add before Start; After at any time, from any thread. Closures run on the ticker's thread, one
// after another, and must not block for long. Start and Stop once; what the closures use outlives
// Stop, which drops what was not due yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"

namespace forebay::server {

class Ticker {
 public:
  using Work = std::function<void(uint64_t now_ms)>;

  ~Ticker() { Stop(); }
  void Add(uint64_t interval_ms, Work work) {
    entries_.push_back({interval_ms, 0, std::move(work)});
  }
  void After(uint64_t delay_ms, std::function<void()> work);
  void Start();
  void Stop();

 private:
  struct Entry {
    uint64_t interval_ms;
    uint64_t due_ms;
    Work work;
  };
  void Run();
  // Takes what is due; otherwise tells when something will be, if that is before `next_ms`.
  std::vector<std::function<void()>> TakeDue(uint64_t now_ms, uint64_t* next_ms);

  std::vector<Entry> entries_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // By when they are due.
  std::multimap<uint64_t, std::function<void()>> once_ ABSL_GUARDED_BY(mutex_);
  uint64_t wakes_ms_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: at work
  std::thread thread_;
};

}  // namespace forebay::server
