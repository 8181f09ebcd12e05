// node::PeerTransport over gRPC: to each peer one stream of messages, and for each snapshot a
// connection of its own, so that no heartbeat is behind one.
//
// Thread-safe. Messages are sent by the thread that polls the queue, its own or a server's, and
// each snapshot by one of its own. Destroying it ends what runs, and each `done` has been called by
// then; what these call is refused, and nobody else calls anything any more. What comes from peers
// is taken by PeerService (peer_service.h).
#pragma once

#include <grpcpp/completion_queue.h>

#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "node/peer_transport.h"
#include "peers/message_link.h"
#include "peers/options.h"
#include "peers/snapshot_send.h"

namespace forebay::peers {

class GrpcPeerTransport final : public node::PeerTransport {
 public:
  // InvalidArgument names the option that is wrong.
  static absl::StatusOr<std::unique_ptr<GrpcPeerTransport>> Create(
      const PeerTransportOptions& options);
  ~GrpcPeerTransport() override;

  // Without a thread of its own: before anything else is asked for. `queue` delivers
  // server::Events, and is there until Stop has returned.
  void Share(grpc::CompletionQueue* queue);
  // Ends what runs: from now on nothing is sent, and snapshots are refused when this is destroyed.
  // Not on the thread that polls.
  void Stop();

  // The nodes that may be sent to, "HOST:PORT" each. One that is left out is forgotten, with what
  // was counted; one whose address has changed is connected to anew.
  void SetPeers(const std::map<cluster::NodeId, std::string>& addresses);

  void Send(cluster::NodeId to, std::string_view machine, std::string bytes) override;
  // `done` is never called within this call. A piece that does not come for 10 s (what the peer has
  // as PeerServiceOptions::progress_timeout) breaks the snapshot off.
  void SendSnapshot(cluster::NodeId to, std::string_view machine, std::string head,
                    std::function<std::string()> next,
                    absl::AnyInvocable<void(absl::Status)> done) override;

  // What concerns the way to the peers; see PeerService::GetStats for the other one. Peers that are
  // not in the map are added.
  void GetStats(PeerStatsMap* stats);

 private:
  explicit GrpcPeerTransport(const PeerTransportOptions& options);
  class Ticks;

  void Poll();
  void Tick();
  void SetLinks(const std::map<cluster::NodeId, std::string>& addresses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs `task` on the thread that polls.
  void Post(absl::AnyInvocable<void()> task);
  // Takes out what has ended, to be destroyed without the lock.
  std::list<std::unique_ptr<SnapshotSend>> TakeEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<MessageLink> Find(cluster::NodeId peer);

  const PeerTransportOptions options_;
  const std::unique_ptr<grpc::CompletionQueue> own_queue_;
  grpc::CompletionQueue* queue_;  // nothing until it is shared
  InFlight in_flight_;
  std::unique_ptr<Ticks> ticks_;
  Mutex mutex_;
  std::map<cluster::NodeId, std::shared_ptr<MessageLink>> links_ ABSL_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<SnapshotSend>> snapshots_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<absl::AnyInvocable<void()>> refused_ ABSL_GUARDED_BY(mutex_);  // since it stopped
  std::thread poller_;
};

}  // namespace forebay::peers
