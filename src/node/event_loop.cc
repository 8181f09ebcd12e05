#include "node/event_loop.h"

namespace forebay::node {

EventLoop::EventLoop() {
  thread_ = std::thread([this] { Run(); });
}

void EventLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void EventLoop::Post(Work work) {
  MutexLock lock(&mutex_);
  posted_.push_back(std::move(work));
  changed_.NotifyAll();
}

EventLoop::TimerId EventLoop::At(Deadline when, Work work) {
  MutexLock lock(&mutex_);
  const TimerId id{when, ++timers_made_};
  timers_.emplace(id, std::move(work));
  changed_.NotifyAll();
  return id;
}

void EventLoop::Cancel(const TimerId& timer) {
  Work work;  // destroyed without the lock
  MutexLock lock(&mutex_);
  const auto found = timers_.find(timer);
  if (found == timers_.end()) return;
  work = std::move(found->second);
  timers_.erase(found);
}

void EventLoop::Run() {
  std::vector<Work> batch;
  while (true) {
    Work due;
    {
      MutexLock lock(&mutex_);
      while (true) {
        batch.swap(posted_);
        if (!batch.empty()) break;
        if (stopping_) return;
        if (timers_.empty()) {
          changed_.Wait(&mutex_);
          continue;
        }
        const auto first = timers_.begin();
        if (first->first.first <= std::chrono::steady_clock::now()) {
          due = std::move(first->second);
          timers_.erase(first);
          break;
        }
        changed_.WaitUntil(&mutex_, first->first.first);
      }
    }
    for (Work& work : batch) work();
    batch.clear();
    if (due) due();
  }
}

}  // namespace forebay::node
