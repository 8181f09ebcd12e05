// A node among others: its replicas, what the coordinator says of them, and whether it leads.
//
// One node leads at a time: it is the serving primary of every machine, but for shards that nobody
// has brought there in time. Each machine has a reign of its own; the others follow the ledger's,
// by planned switchovers. Thread-safe. Callbacks run on threads of this object, one at a time each,
// and must not block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "cluster/leadership.h"
#include "node/absent_machines.h"
#include "node/cluster_keys.h"
#include "node/coordinator.h"
#include "node/data_directory.h"
#include "node/event_loop.h"
#include "node/machine_replica.h"
#include "node/peer_transport.h"

namespace forebay::node {

struct ClusterOptions {
  std::string name;
  cluster::NodeId node;
  NodeAddress address;
  uint32_t replicas = 3;
  uint32_t min_in_sync = 2;
  uint64_t replace_after_ms = 300'000;      // a node that is away for so long gets successors
  uint64_t lead_without_after_ms = 10'000;  // see cluster/leadership.h
};

struct ClusterCallbacks {
  // Every machine but these serves here. Once; then it is for the caller to take them up, or to
  // end.
  std::function<void(const AbsentMachines&)> lead;
  // It led, and its reign is over: another node decides now, or is to.
  std::function<void(const std::string& why)> deposed;
  std::function<void(const ClusterState&)> changed;
  std::function<void(const std::map<cluster::NodeId, std::string>&)> peers;  // addresses
  std::function<void(const std::string&)> note;                              // for the daemon's log
};

// Whose run the cluster has: the coordinator's word, or `proposed`, which becomes it. Blocks.
absl::StatusOr<RunIdentity> AgreeOnRun(Coordinator* coordinator, const std::string& cluster,
                                       const RunIdentity& proposed, absl::Duration timeout);
// What stands there now. Blocks.
absl::StatusOr<ClusterState> ReadCluster(Coordinator* coordinator, const std::string& cluster,
                                         absl::Duration timeout);

class ClusterNode final : public PeerPort {
 public:
  ClusterNode(ClusterOptions options, Coordinator* coordinator, ClusterCallbacks callbacks);
  ~ClusterNode() override;

  // Before Start, all of them: the ledger first.
  void Add(std::shared_ptr<MachineReplica> replica);
  absl::Status Start();
  // Afterwards no callback runs. The replicas are closed by then.
  void Stop();

  // For a replica's ports.
  void Swap(const std::string& machine, const replication::Swap& swap,
            absl::AnyInvocable<void(const replication::SwapAnswer&)> answer);

  // Hands everything over to another node that is in sync with every machine, or says why not;
  // `done` comes when that has begun. `to` 0: any.
  void SwitchOver(cluster::NodeId to, absl::AnyInvocable<void(absl::Status)> done);
  // Before the process of a node that does not lead ends: `done` comes when no machine waits for
  // it any more, or soon after it cannot be helped.
  void Leave(absl::AnyInvocable<void()> done);
  // Of a replica's ports.
  void OnDeposed();

  void OnMessage(std::string_view machine, std::string_view bytes) override;
  std::unique_ptr<SnapshotReceiver> OnSnapshot(std::string_view machine,
                                               std::string_view head) override;

  const std::vector<std::shared_ptr<MachineReplica>>& replicas() const { return replicas_; }
  const ClusterOptions& options() const { return options_; }

 private:
  void TickReplicas();
  void Look();
  void LookWhetherToLead(uint64_t now_ms);
  AbsentMachines WhatIsMissing() const;
  // Of a node that leads without machines that serve here now.
  void TakeBack(uint64_t now_ms);
  void OnWatch(const WatchEvent& event);
  void Tell();
  void Register();
  void Bootstrap(uint64_t now_ms);
  void FollowLedger();
  // `to`, or if that is 0 any other node, if it is in sync with every machine; or why not.
  absl::StatusOr<cluster::NodeId> SuccessorFor(cluster::NodeId to) const;
  void BeginHandingOver(cluster::NodeId to);
  void GoOnHandingOver();
  void GoOnLeaving(uint64_t now_ms);
  void LookWhetherDeposed(uint64_t now_ms);
  void Place(uint64_t now_ms);
  void FulfilWishes(uint64_t now_ms);
  void TrimEvents();
  void WriteEvent(std::string_view what, std::string_view why);
  // `then`: once it is done, within the loop. Nothing if another one is under way.
  void Commit(const std::string& what, Transaction transaction,
              absl::AnyInvocable<void()> then = nullptr);
  std::string Self() const;
  std::string KeyOf(const std::string& machine) const;

  const ClusterOptions options_;
  const std::string prefix_;
  Coordinator* const coordinator_;
  const ClusterCallbacks callbacks_;
  std::vector<std::shared_ptr<MachineReplica>> replicas_;
  std::map<std::string, MachineReplica*, std::less<>> by_name_;
  std::atomic<bool> leading_{false};
  Mutex known_mutex_;  // what Tell told last
  std::map<std::string, cluster::Configuration> known_ ABSL_GUARDED_BY(known_mutex_);

  // Of the loop.
  ClusterReader reader_;
  std::optional<cluster::Leadership> leadership_;  // from Start on
  uint64_t whole_ms_ = 0, take_back_ms_ = 0;       // since when TakeBack tries; when it does again
  std::map<cluster::NodeId, std::string> peers_;
  std::map<std::string, cluster::ConfigurationRevision> told_;  // to the replicas
  std::map<cluster::NodeId, uint64_t> seen_ms_;                 // when a node was last present
  bool registered_ = false, registering_ = false, committing_ = false;
  uint64_t follow_ms_ = 0, place_ms_ = 0, enough_ms_ = 0, leave_ms_ = 0;
  cluster::NodeId hand_over_to_;
  uint64_t hand_over_until_ms_ = 0;
  uint64_t deposed_ms_ = 0;
  absl::AnyInvocable<void()> left_;  // set: the node leaves
  uint64_t leave_until_ms_ = 0;
  bool paused_ = false;
  std::string refused_;  // nodes with logs, beside which no cluster is begun

  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Presence> presence_;
  EventLoop ticks_, loop_;
};

}  // namespace forebay::node
