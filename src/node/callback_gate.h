// A callback that can be taken away: from then on it does not run, and nobody is in it any more.
//
// Thread-safe. Run is called by one thread at a time. Close may be called from within the callback,
// which then is the last one; from any other thread it waits for a callback that runs.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"

namespace forebay::node {

template <class Event>
class CallbackGate {
 public:
  explicit CallbackGate(std::function<void(Event)> callback) : callback_(std::move(callback)) {}

  void Run(Event event) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      runner_ = std::this_thread::get_id();
    }
    callback_(std::move(event));
    MutexLock lock(&mutex_);
    runner_ = std::thread::id();
    changed_.NotifyAll();
  }

  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    if (runner_ == std::this_thread::get_id()) return;
    while (runner_ != std::thread::id()) changed_.Wait(&mutex_);
  }

  bool closed() {
    MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  const std::function<void(Event)> callback_;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id runner_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::node
