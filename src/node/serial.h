// Runs closures one at a time, in the order they were posted, on whichever thread posts while none
// runs.
//
// A shard loop needs one thread at a time, not a thread of its own: with a queue of its own, an
// idle loop costs the poster no switch of threads, and a busy one batches what others post
// meanwhile. Thread-safe. A closure may post to its own Serial (it runs afterwards) and to others.
// Closures must not block.
#pragma once

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "base/sync.h"

namespace forebay::node {

class Serial {
 public:
  template <class F>
  void Post(F&& work) {
    {
      MutexLock lock(&mutex_);
      if (running_) {
        queue_.emplace_back(std::forward<F>(work));
        return;
      }
      running_ = true;
    }
    work();
    Drain();
  }

  // Blocks until every closure posted so far has run. Not from within a closure of the same Serial.
  void Flush() {
    MutexLock lock(&mutex_);
    ++flushing_;
    while (running_) idle_.Wait(&mutex_);
    --flushing_;
  }

 private:
  void Drain() {
    std::deque<absl::AnyInvocable<void()>> batch;
    while (true) {
      {
        MutexLock lock(&mutex_);
        if (queue_.empty()) {
          running_ = false;
          if (flushing_ > 0) idle_.NotifyAll();
          return;
        }
        batch.swap(queue_);
      }
      for (auto& work : batch) work();
      batch.clear();
    }
  }

  Mutex mutex_;
  CondVar idle_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  int flushing_ ABSL_GUARDED_BY(mutex_) = 0;  // threads in Flush
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::node
