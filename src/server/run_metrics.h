// What the daemon counts beside the replicated state: pushes by result, waits, lags of what was
// trained.
//
// Volatile: it starts at zero with the process, as Prometheus expects. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "shard/messages.h"

namespace forebay::server {

struct LagCounts {
  std::vector<uint64_t> rollouts;  // by lag
  uint64_t lag_sum = 0;
};

// "admission" of "admission: max_lag ...": what a label may hold. Details would be a series each.
inline std::string_view ReasonWord(std::string_view reason) {
  return reason.substr(0, reason.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
}

class RunMetrics {
 public:
  static constexpr size_t kPushResults = 8;
  static constexpr size_t kWaitReasonsMax = 64;

  void Pushed(const std::vector<shard::PushOutcome>& outcomes) {
    std::array<uint64_t, kPushResults> counts{};
    for (const auto& outcome : outcomes) ++counts[static_cast<size_t>(outcome.result)];
    for (size_t i = 0; i < kPushResults; ++i) {
      if (counts[i] != 0) pushes_[i].fetch_add(counts[i], std::memory_order_relaxed);
    }
  }
  uint64_t pushes(size_t result) const { return pushes_[result].load(std::memory_order_relaxed); }

  // A step was committed: how many of its rollouts had which lag.
  void Committed(const std::vector<uint64_t>& rollouts_by_lag) {
    MutexLock lock(&mutex_);
    if (lags_.rollouts.size() < rollouts_by_lag.size()) {
      lags_.rollouts.resize(rollouts_by_lag.size());
    }
    for (size_t lag = 0; lag < rollouts_by_lag.size(); ++lag) {
      lags_.rollouts[lag] += rollouts_by_lag[lag];
      lags_.lag_sum += lag * rollouts_by_lag[lag];
    }
  }
  LagCounts lags() const {
    MutexLock lock(&mutex_);
    return lags_;
  }

  // Milliseconds waited: `who` is "trainer", "actor" or "push", `reason` a short word. Actors' and
  // pushes' add up over those who wait.
  void Waited(const std::string& who, const std::string& reason, uint64_t ms) {
    std::pair<std::string, std::string> key(who, ReasonWord(reason));
    MutexLock lock(&mutex_);
    if (waited_ms_.size() >= kWaitReasonsMax && !waited_ms_.contains(key)) key.second = "other";
    waited_ms_[std::move(key)] += ms;
  }
  std::map<std::pair<std::string, std::string>, uint64_t> waited_ms() const {
    MutexLock lock(&mutex_);
    return waited_ms_;
  }

  // Of the time since a trainer was first seen: how long there was one, and how long it had a step
  // open that was not sealed.
  void TrainerTime(uint64_t ms, bool waiting) {
    trainer_ms_.fetch_add(ms, std::memory_order_relaxed);
    if (waiting) trainer_waiting_ms_.fetch_add(ms, std::memory_order_relaxed);
  }
  uint64_t trainer_ms() const { return trainer_ms_.load(std::memory_order_relaxed); }
  uint64_t trainer_waiting_ms() const {
    return trainer_waiting_ms_.load(std::memory_order_relaxed);
  }

  // Groups dropped and pushes let in out of turn, to end a standstill for want of payload memory.
  std::atomic<uint64_t> relief_admitted{0};
  std::atomic<uint64_t> relief_dropped{0};
  // Push streams ended because they stopped half-way: others waited for memory, or the lease was
  // over.
  std::atomic<uint64_t> pushes_stalled_memory{0};
  std::atomic<uint64_t> pushes_stalled_lease{0};

 private:
  std::array<std::atomic<uint64_t>, kPushResults> pushes_{};
  std::atomic<uint64_t> trainer_ms_{0};
  std::atomic<uint64_t> trainer_waiting_ms_{0};
  mutable Mutex mutex_;
  LagCounts lags_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, uint64_t> waited_ms_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
