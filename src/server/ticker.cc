#include "server/ticker.h"

#include <algorithm>
#include <utility>

#include "base/sync.h"
#include "node/engine.h"

namespace forebay::server {

void Ticker::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Ticker::After(uint64_t delay_ms, std::function<void()> work) {
  const uint64_t due_ms = node::Engine::NowMs() + delay_ms;
  MutexLock lock(&mutex_);
  if (stopping_) return;
  once_.emplace(due_ms, std::move(work));
  if (due_ms < wakes_ms_) changed_.NotifyAll();
}

void Ticker::Stop() {
  std::multimap<uint64_t, std::function<void()>> dropped;  // outside the lock
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(once_);
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::vector<std::function<void()>> Ticker::TakeDue(uint64_t now_ms, uint64_t* next_ms) {
  std::vector<std::function<void()>> due;
  MutexLock lock(&mutex_);
  while (!once_.empty() && once_.begin()->first <= now_ms) {
    due.push_back(std::move(once_.extract(once_.begin()).mapped()));
  }
  if (!once_.empty()) *next_ms = std::min(*next_ms, once_.begin()->first);
  return due;
}

void Ticker::Run() {
  while (true) {
    uint64_t now = node::Engine::NowMs();
    uint64_t next = now + 1000;
    for (auto& entry : entries_) {
      if (now >= entry.due_ms) {
        entry.work(now);
        now = node::Engine::NowMs();
        entry.due_ms = now + entry.interval_ms;
      }
      next = std::min(next, entry.due_ms);
    }
    for (const auto& work : TakeDue(now, &next)) work();
    now = node::Engine::NowMs();
    const auto pause = absl::Milliseconds(static_cast<int64_t>(next > now ? next - now : 0));
    const Deadline due = DeadlineIn(pause);
    MutexLock lock(&mutex_);
    wakes_ms_ = next;
    while (!stopping_ && (once_.empty() || once_.begin()->first >= next) &&
           changed_.WaitUntil(&mutex_, due)) {
    }
    wakes_ms_ = 0;
    if (stopping_) return;
  }
}

}  // namespace forebay::server
