// Locks and waits that ThreadSanitizer sees, with absl's annotations. Debian's absl::Mutex and
// absl::Notification are not instrumented, so that every use of them looks like a race.
//
// Thread-safe, of course.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace forebay {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A moment that no setting of the wall clock moves.
using Deadline = std::chrono::steady_clock::time_point;

inline Deadline DeadlineIn(absl::Duration timeout) {
  // A hundred years: infinite ones would overflow.
  timeout = std::min(timeout, absl::Hours(24 * 36'500));
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
}

// Waits may end without reason: the caller asks in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex->mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // Not beyond `deadline`; false at it.
  bool WaitUntil(Mutex* mutex, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock lock(mutex->mutex_, std::adopt_lock);
    const bool told = changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return told;
  }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

// Something that happens once.
class Notification {
 public:
  // Nothing of this object is touched after its waiters can see it.
  void Notify() {
    MutexLock lock(&mutex_);
    happened_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(&mutex_);
    while (!happened_) changed_.Wait(&mutex_);
  }
  // Whether it happened in time.
  bool WaitFor(absl::Duration timeout) {
    const Deadline deadline = DeadlineIn(timeout);
    MutexLock lock(&mutex_);
    while (!happened_ && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return happened_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace forebay
