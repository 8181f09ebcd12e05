// One thread that calls closures again and again, for what must be looked at although nobody calls.
//
// Add before Start. Closures run on the ticker's thread, one after another, and must not block for
// long. Start and Stop once; what the closures use outlives Stop.
#pragma once

#include <cstdint>
#include <functional>
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
  void Start();
  void Stop();

 private:
  struct Entry {
    uint64_t interval_ms;
    uint64_t due_ms;
    Work work;
  };
  void Run();

  std::vector<Entry> entries_;
  Mutex mutex_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace forebay::server
