#include "server/ticker.h"

#include <algorithm>

#include "base/sync.h"
#include "node/engine.h"

namespace forebay::server {

void Ticker::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Ticker::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
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
    const auto pause = absl::Milliseconds(static_cast<int64_t>(next > now ? next - now : 0));
    const Deadline due = DeadlineIn(pause);
    MutexLock lock(&mutex_);
    while (!stopping_ && stop_.WaitUntil(&mutex_, due)) {
    }
    if (stopping_) return;
  }
}

}  // namespace forebay::server
