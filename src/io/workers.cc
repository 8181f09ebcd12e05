#include "io/workers.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace forebay::io {

Workers::Workers(size_t threads, const char* name) {
  FOREBAY_CHECK(threads > 0);
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), name);
  }
}

Workers::~Workers() { FOREBAY_CHECK(threads_.empty()); }

bool Workers::Post(Work work) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return false;
  queue_.push_back(std::move(work));
  return true;
}

void Workers::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::Run() {
  while (true) {
    Work work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](Workers* self)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->stopping_ || !self->queue_.empty(); },
          this));
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace forebay::io
