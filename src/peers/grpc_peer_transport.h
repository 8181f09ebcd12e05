// node::PeerTransport over gRPC: to each peer one stream of messages, and for each snapshot a
// connection of its own, so that no heartbeat is behind one.
//
// Thread-safe. It has one thread that polls, and one for each snapshot that is sent. Destroying it
// ends what runs, and each `done` has been called by then; what these call is refused, and nobody
// else calls anything any more. What comes from peers is taken by PeerService (peer_service.h).
#pragma once

#include <grpcpp/completion_queue.h>

#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

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
  void Poll();
  void Tick(Deadline now);
  // Runs `task` on the thread that polls.
  void Post(absl::AnyInvocable<void()> task);
  // Takes out what has ended, to be destroyed without the lock.
  std::list<std::unique_ptr<SnapshotSend>> TakeEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<MessageLink> Find(cluster::NodeId peer);

  const PeerTransportOptions options_;
  grpc::CompletionQueue queue_;
  InFlight in_flight_;
  Mutex mutex_;
  std::map<cluster::NodeId, std::shared_ptr<MessageLink>> links_ ABSL_GUARDED_BY(mutex_);
  std::list<std::unique_ptr<SnapshotSend>> snapshots_ ABSL_GUARDED_BY(mutex_);
  std::thread poller_;
};

}  // namespace forebay::peers
