// The configuration while the daemon runs: read by anyone, changed as a whole.
//
// Thread-safe. `apply` runs under the lock, after a change, with the new values.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "node/config.h"

namespace forebay::server {

class LiveConfig {
 public:
  explicit LiveConfig(const node::Config& config) : config_(config) {}
  // Before the daemon serves.
  void OnChange(std::function<void(const node::Config&)> apply) { apply_ = std::move(apply); }

  node::Config Get() const {
    absl::MutexLock lock(&mutex_);
    return config_;
  }
  // Answers what changes; with `dry_run` nothing does.
  absl::StatusOr<std::vector<node::ConfigChange>> Set(
      const std::map<std::string, std::string>& values, bool dry_run) {
    absl::MutexLock lock(&mutex_);
    node::Config changed = config_;
    auto changes = node::Change(values, &changed);
    if (changes.ok() && !dry_run) {
      config_ = changed;
      if (apply_) apply_(config_);
    }
    return changes;
  }

 private:
  std::function<void(const node::Config&)> apply_;
  mutable absl::Mutex mutex_;
  node::Config config_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
