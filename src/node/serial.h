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
#include "absl/synchronization/mutex.h"

namespace forebay::node {

class Serial {
 public:
  template <class F>
  void Post(F&& work) {
    {
      absl::MutexLock lock(&mutex_);
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
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](Serial* self) ABSL_NO_THREAD_SAFETY_ANALYSIS { return !self->running_; }, this));
  }

 private:
  void Drain() {
    std::deque<absl::AnyInvocable<void()>> batch;
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (queue_.empty()) {
          running_ = false;
          return;
        }
        batch.swap(queue_);
      }
      for (auto& work : batch) work();
      batch.clear();
    }
  }

  absl::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::node
