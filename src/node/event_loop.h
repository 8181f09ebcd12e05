// A thread that runs closures one after another, now or at a moment.
//
// Thread-safe. It refuses nothing: those who post bound what they post, each by its own limit on
// what it has begun. Closures must not block, unless the loop is there for that.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "base/sync.h"

namespace forebay::node {

class EventLoop {
 public:
  using Work = absl::AnyInvocable<void()>;
  // Of something that is to run; also those that ran already.
  using TimerId = std::pair<Deadline, uint64_t>;

  EventLoop();
  ~EventLoop() { Stop(); }
  // Runs what was posted before, and what that posts; timers that are not due are dropped. Owners
  // whose closures use the loop call it before they let go of it. Not from within a closure.
  void Stop();

  void Post(Work work);
  TimerId At(Deadline when, Work work);
  // It does not run afterwards, if this is called from within a closure of the loop.
  void Cancel(const TimerId& timer);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Work> posted_ ABSL_GUARDED_BY(mutex_);
  uint64_t timers_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<TimerId, Work> timers_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace forebay::node
