// grpc.health.v1.Health, Check and Watch, as handlers on this layer (see rpc_server.h for why).
//
// SetServing may be called from any thread. The object outlives the server.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "server/grpc/method_table.h"

namespace forebay::server {

class Health {
 public:
  // Adds the two methods. Every service that is in the table by the time it is asked for has the
  // server's own state.
  void AddTo(MethodTable* methods);
  void SetServing(bool serving);

 private:
  class Watcher;
  // A posted task finds its stream alive or is dropped, so the watcher lives when it is told.
  struct Watching {
    StreamRef stream;
    Watcher* watcher = nullptr;
  };
  uint32_t StateOf(const std::string& service) const;
  uint64_t AddWatcher(StreamRef stream, Watcher* watcher);
  void RemoveWatcher(uint64_t id);

  const MethodTable* methods_ = nullptr;
  std::atomic<bool> serving_{true};
  Mutex mutex_;
  uint64_t last_watcher_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Watching> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
