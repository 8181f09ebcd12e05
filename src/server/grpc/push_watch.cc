#include "server/grpc/push_watch.h"

#include <chrono>
#include <utility>

#include "base/sync.h"

namespace forebay::server {
namespace {

uint64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace

uint64_t PushWatch::Begin(End end) {
  MutexLock lock(&mutex_);
  entries_[++last_id_] = {.end = std::move(end), .last_ms = NowMs()};
  return last_id_;
}

void PushWatch::Came(uint64_t id, uint64_t frames, const shard::LeaseRef& lease) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  found->second.lease = lease;
  found->second.frames = frames;
  found->second.last_ms = NowMs();
}

void PushWatch::Forget(uint64_t id) {
  MutexLock lock(&mutex_);
  entries_.erase(id);
}

std::vector<PushWatch::Stalled> PushWatch::Find(uint64_t idle_ms) const {
  std::vector<Stalled> out;
  MutexLock lock(&mutex_);
  if (entries_.empty()) return out;
  const uint64_t now = NowMs();
  for (const auto& [id, entry] : entries_) {
    const uint64_t idle = now - entry.last_ms;
    if (idle >= idle_ms) out.push_back({id, entry.frames, entry.lease, idle});
  }
  return out;
}

bool PushWatch::EndStalled(const Stalled& stalled, const std::string& why) {
  End end;
  {
    MutexLock lock(&mutex_);
    const auto found = entries_.find(stalled.id);
    if (found == entries_.end() || found->second.frames != stalled.frames) return false;
    end = std::move(found->second.end);
    entries_.erase(found);
  }
  end(stalled.frames, why);
  return true;
}

}  // namespace forebay::server
