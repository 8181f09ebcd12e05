// The daemon's part in a cluster: coordinator, peers, the replicas of its machines, and what
// clients are told of who leads.
//
// Open, Follow, AddServices, Start on one thread, in that order; Stop before what they were given
// goes. In between thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "etcd/coordinator.h"
#include "io/disk.h"
#include "io/workers.h"
#include "node/cluster_node.h"
#include "node/config.h"
#include "node/content_machine.h"
#include "node/engine.h"
#include "node/replicated_journal.h"
#include "peers/grpc_peer_transport.h"
#include "peers/peer_service.h"
#include "server/cluster_facts.h"
#include "server/cluster_map.h"
#include "server/operator_service.h"
#include "server/ticker.h"
#include "storage/content_store.h"

namespace forebay::server {

class ClusterRun final : public node::PeerPort {
 public:
  struct Events {
    // Every machine but these serves here: the daemon is to take them up. Must not block.
    std::function<void(const node::AbsentMachines&)> lead;
    // The node led, and its reign is over: the process begins anew.
    std::function<void(const std::string& why)> deposed;
    // A log has failed.
    std::function<void(std::string_view log, const absl::Status&)> failed;
    std::function<void(std::string_view machine, const absl::StatusOr<node::SnapshotTaken>&)>
        snapshot;
  };
  // Asks the coordinator whose run it is; blocks. The events are called from Follow on.
  static absl::StatusOr<std::unique_ptr<ClusterRun>> Open(const node::Config& config,
                                                          uint64_t new_run);
  ~ClusterRun() override;

  uint64_t run() const { return identity_.run; }
  // Where the data lies, and the how many-th start of the node this is.
  struct Place {
    io::Disk* disk = nullptr;
    std::string directory;
    uint64_t incarnation = 0;
    uint64_t nonce = 0;
  };
  // Reads what is on the disk, and keeps engine and contents up to date from then on.
  absl::Status Follow(const Place& place, node::Engine* engine, storage::ContentStore* contents,
                      Events events);
  // `leads`: whether the daemon serves clients.
  void AddServices(ClusterMap* map, Ticker* ticker, MethodTable* methods,
                   std::function<bool()> leads);
  // Peers are spoken to on `queue` (RpcServer::shared_queue).
  absl::Status Start(node::NodeAddress address, grpc::CompletionQueue* queue);
  // Before the queue ends; the rest goes on.
  void StopSending();
  void Stop();

  // What Engine::Begin takes when the node leads, and of which reign that is.
  node::Journal* journal() { return journal_.get(); }
  cluster::Epoch epoch();
  // Of a node that leads: see RunStorage::AddContents.
  using Added = absl::AnyInvocable<void(absl::StatusOr<std::vector<PayloadId>>)>;
  void AddContents(const std::vector<std::string>& items, Added done);
  // See ClusterNode::SwitchOver.
  void SwitchOver(cluster::NodeId to, absl::AnyInvocable<void(absl::Status)> done) {
    node_->SwitchOver(to, std::move(done));
  }
  // See ClusterNode::Leave.
  void Leave(absl::AnyInvocable<void()> done) { node_->Leave(std::move(done)); }
  // What was found at the start, for the daemon's log.
  std::vector<std::string> notes() const;
  ClusterFacts Facts() const;
  // Also looks at each replica, which may take a moment.
  ClusterPage Page() const;

  void OnMessage(std::string_view machine, std::string_view bytes) override;
  std::unique_ptr<node::SnapshotReceiver> OnSnapshot(std::string_view machine,
                                                     std::string_view head) override;

 private:
  ClusterRun(const node::Config& config, const node::RunIdentity& identity,
             std::unique_ptr<etcd::Coordinator> coordinator);
  absl::Status OpenTransport();
  absl::StatusOr<std::shared_ptr<node::MachineReplica>> OpenReplica(const std::string& machine,
                                                                    node::ReplicatedState* state);
  void OnChanged(const node::ClusterState& state);
  peers::PeerStatsMap PeerStats() const;

  const node::Config config_;
  const node::RunIdentity identity_;
  const std::unique_ptr<etcd::Coordinator> coordinator_;
  const std::unique_ptr<io::Workers> encoder_;
  Events events_;
  Place place_;
  ClusterMap* map_ = nullptr;
  node::ClusterState known_;  // at the start
  std::unique_ptr<peers::GrpcPeerTransport> transport_;
  std::unique_ptr<peers::PeerService> service_;
  std::unique_ptr<node::ContentMachine> contents_;
  std::unique_ptr<node::ReplicatedJournal> journal_;
  std::vector<std::shared_ptr<node::MachineReplica>> replicas_;
  std::shared_ptr<node::MachineReplica> content_replica_;
  std::unique_ptr<node::ClusterNode> node_;
  std::atomic<node::ClusterNode*> started_{nullptr};
  mutable Mutex facts_mutex_;
  ClusterFacts facts_ ABSL_GUARDED_BY(facts_mutex_);  // but for what only now can be known
  std::unique_ptr<OperatorService> operators_;
};

}  // namespace forebay::server
