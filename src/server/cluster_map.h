// What this node knows of its cluster, and the service that tells it to clients.
//
// Thread-safe; outlives the server and the ticker. Watchers hear of the newest view, in order; one
// that does not read hears of it when it reads again.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "forebay/v1/cluster.pb.h"
#include "server/grpc/method_table.h"
#include "server/ticker.h"

namespace forebay::server {

// Trailing metadata of a refusal: the address of the node that leads, and its epoch.
inline constexpr char kLeaderKey[] = "forebay-leader";
inline constexpr char kLeaderEpochKey[] = "forebay-leader-epoch";

class ClusterMap {
 public:
  // Takes a new view, and tells it to all who watch; one that says nothing new changes nothing. The
  // revision is the map's own.
  void Set(v1::ClusterView view);
  // Before the first Set: a view without nodes, of revision 0.
  std::shared_ptr<const v1::ClusterView> Get() const;

 private:
  friend void AddClusterService(ClusterMap* map, Ticker* ticker, MethodTable* methods);
  class Watcher;
  // A posted task finds its stream alive or is dropped, so the watcher lives when it is told.
  struct Watching {
    StreamRef stream;
    Watcher* watcher = nullptr;
  };
  // The newest view as a message of the stream, encoded once for all.
  struct Encoded {
    uint64_t revision = 0;
    grpc::ByteBuffer news;
    grpc::ByteBuffer heartbeat;
  };
  std::shared_ptr<const Encoded> encoded() const;
  uint64_t AddWatcher(StreamRef stream, Watcher* watcher);
  void RemoveWatcher(uint64_t id);
  // Tells those that have heard nothing for a heartbeat.
  void Beat(uint64_t now_ms);

  mutable Mutex mutex_;
  std::shared_ptr<const v1::ClusterView> view_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const v1::ClusterView>();
  std::shared_ptr<const Encoded> encoded_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_watcher_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Watching> watchers_ ABSL_GUARDED_BY(mutex_);
};

// ClusterService: Get and Watch. The ticker has not started yet.
void AddClusterService(ClusterMap* map, Ticker* ticker, MethodTable* methods);

// Whether a node that does not lead serves the method all the same: it is of the cluster's service,
// the operators' or of health, or nodes call it among themselves.
bool ServedByAnyNode(std::string_view method);

// A node's answer to all other calls while it does not lead, by its view: UNAVAILABLE, with the
// leader's address and epoch as trailers if it knows them.
absl::Status DoesNotLead(const v1::ClusterView& view);

// The view of a daemon without a cluster.
v1::ClusterView AloneView(uint64_t run);

}  // namespace forebay::server
