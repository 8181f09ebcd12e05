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
  std::lock_guard lock(mutex_);
  if (stopping_) return false;
  queue_.push_back(std::move(work));
  changed_.notify_one();
  return true;
}

void Workers::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::Run() {
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace forebay::io
