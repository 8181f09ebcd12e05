// The configuration while the daemon runs: read by anyone, changed as a whole.
//
// Thread-safe. `apply` runs after a change, with the new values, before the next change.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "node/config.h"

namespace forebay::server {

class LiveConfig {
 public:
  explicit LiveConfig(const node::Config& config) : config_(config) {}
  // Before the daemon serves.
  void OnChange(std::function<void(const node::Config&)> apply) { apply_ = std::move(apply); }

  node::Config Get() const {
    MutexLock lock(&mutex_);
    return config_;
  }
  // Answers what changes; with `dry_run` nothing does.
  absl::StatusOr<std::vector<node::ConfigChange>> Set(
      const std::map<std::string, std::string>& values, bool dry_run) {
    // What `apply` sets going may read the configuration, so only changes wait for each other.
    MutexLock one_at_a_time(&change_mutex_);
    node::Config changed = Get();
    auto changes = node::Change(values, &changed);
    if (!changes.ok() || dry_run) return changes;
    {
      MutexLock lock(&mutex_);
      config_ = changed;
    }
    if (apply_) apply_(changed);
    return changes;
  }

 private:
  std::function<void(const node::Config&)> apply_;
  Mutex change_mutex_;
  mutable Mutex mutex_;
  node::Config config_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
