// A fixed number of threads that run closures in the order in which they were posted (with one
// thread: one after another).
//
// Thread-safe. The queue has no bound of its own: what waits in it holds memory of those who wait
// for it, which they bound.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace forebay::io {

class Workers {
 public:
  using Work = absl::AnyInvocable<void()>;

  // `name` is what `top -H` shows; at most 15 characters.
  Workers(size_t threads, const char* name);
  // Stopped before.
  ~Workers();

  // False, and nothing happens, once Stop was called.
  bool Post(Work work);
  // Runs what is queued, then ends the threads. Once, and not from one of them.
  void Stop();

 private:
  void Run();

  std::vector<std::thread> threads_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<Work> queue_;
};

}  // namespace forebay::io
