// Serves PeerService: takes what peers send, and delivers it to a node::PeerPort.
//
// GetStats may be called from any thread; AddTo before the server starts. The service outlives the
// server, and the port the service. Messages are delivered on the threads that poll the server; a
// snapshot on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "node/peer_transport.h"
#include "peers/options.h"
#include "server/grpc/method_table.h"

namespace forebay::peers {

struct PeerServiceOptions {
  std::string cluster;
  cluster::NodeId self;
  // Snapshots that are taken at once; more are refused.
  size_t snapshots_max = 8;
  // A snapshot of which nothing more comes for so long is broken off.
  absl::Duration progress_timeout = absl::Seconds(10);
};

// A node that opens streams is remembered for good, so their number has a limit.
inline constexpr size_t kPeersMax = 1'024;

class PeerService {
 public:
  PeerService(const PeerServiceOptions& options, node::PeerPort* port);
  ~PeerService();

  void AddTo(server::MethodTable* methods);

  // What concerns the way from the peers. Peers that are not in the map are added.
  void GetStats(PeerStatsMap* stats);

  // For the streams. FailedPrecondition says why who opens the stream is refused.
  absl::Status Check(std::string_view opening, cluster::NodeId* from);
  node::PeerPort* port() const { return port_; }
  const PeerServiceOptions& options() const { return options_; }
  // Changes what is counted of a peer that has passed Check.
  void Count(cluster::NodeId from, const std::function<void(PeerStats& stats)>& change);
  // Runs `take` on a thread of its own; ResourceExhausted if too many run.
  absl::Status StartSnapshot(std::function<void()> take);

 private:
  struct Taker {
    std::atomic<bool> ended{false};
    std::thread thread;
  };

  const PeerServiceOptions options_;
  node::PeerPort* const port_;
  Mutex mutex_;
  PeerStatsMap stats_ ABSL_GUARDED_BY(mutex_);
  std::list<Taker> takers_ ABSL_GUARDED_BY(mutex_);  // those that have ended go with the next start
};

}  // namespace forebay::peers
