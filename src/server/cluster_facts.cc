#include "server/cluster_facts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace forebay::server {
namespace {

double D(uint64_t value) { return static_cast<double>(value); }

void AddReplicas(const ClusterPage& page, MetricFamilies* out) {
  for (const auto& [machine, view] : page.replicas) {
    out->Gauge("forebay_replica_primary", "1 if this node's replica of the machine is the primary.",
               view.role == replication::Role::kPrimary ? 1 : 0, {{"machine", machine}});
    out->Gauge("forebay_replica_failed", "1 if the replica has stopped for good.",
               view.failed ? 1 : 0, {{"machine", machine}});
    out->Gauge(
        "forebay_replica_in_sync", "1 if the replica counts for what is committed.",
        view.configuration.InSync(cluster::NodeId(page.facts.node), view.incarnation) ? 1 : 0,
        {{"machine", machine}});
    out->Gauge("forebay_replica_epoch", "Of the reign that the replica knows.", D(view.epoch.value),
               {{"machine", machine}});
    const std::pair<const char*, uint64_t> positions[] = {{"last", view.last.value},
                                                          {"synced", view.synced.value},
                                                          {"committed", view.committed.value},
                                                          {"applied", view.applied.value}};
    for (const auto& [what, position] : positions) {
      out->Gauge("forebay_replica_position",
                 "Of the log: the newest entry, up to where it is on the disk, committed, applied.",
                 D(position), {{"machine", machine}, {"what", what}});
    }
  }
}

void AddPeers(const ClusterPage& page, MetricFamilies* out) {
  for (const auto& [node, stats] : page.peers) {
    const std::string peer = absl::StrCat(node.value);
    out->Gauge("forebay_peer_connected", "1 if the peer takes messages.", stats.connected ? 1 : 0,
               {{"peer", peer}});
    if (stats.last_heard != absl::InfinitePast()) {
      out->Gauge("forebay_peer_silent_seconds", "Since something came from the peer.",
                 std::max(0.0, absl::ToDoubleSeconds(absl::Now() - stats.last_heard)),
                 {{"peer", peer}});
    }
    const auto count = [&](const char* name, const char* help, const char* direction,
                           uint64_t value) {
      out->Counter(name, help, D(value), {{"peer", peer}, {"direction", direction}});
    };
    count("forebay_peer_messages_total", "Messages between replicas.", "sent", stats.sent_messages);
    count("forebay_peer_messages_total", "Messages between replicas.", "received",
          stats.received_messages);
    count("forebay_peer_bytes_total", "Bytes of messages between replicas.", "sent",
          stats.sent_bytes);
    count("forebay_peer_bytes_total", "Bytes of messages between replicas.", "received",
          stats.received_bytes);
    count("forebay_peer_snapshots_total", "Snapshots of machines' states.", "sent",
          stats.snapshots_sent);
    count("forebay_peer_snapshots_total", "Snapshots of machines' states.", "received",
          stats.snapshots_received);
    count("forebay_peer_snapshot_bytes_total", "Bytes of snapshots.", "sent",
          stats.snapshot_bytes_sent);
    count("forebay_peer_snapshot_bytes_total", "Bytes of snapshots.", "received",
          stats.snapshot_bytes_received);
    out->Counter("forebay_peer_dropped_messages_total", "Messages that the peer did not take.",
                 D(stats.dropped_messages), {{"peer", peer}});
    out->Counter("forebay_peer_failures_total", "Streams that broke or did not come about.",
                 D(stats.failures), {{"peer", peer}});
    out->Gauge("forebay_peer_queued_bytes", "Wait for the peer.", D(stats.queued_bytes),
               {{"peer", peer}});
  }
}

}  // namespace

void AddClusterReasons(const ClusterFacts& facts, std::vector<std::string>* reasons) {
  if (facts.node == 0) return;
  if (!facts.coordinator_reachable) {
    reasons->push_back(
        absl::StrCat("etcd cannot be reached since ", facts.coordinator_away_ms / 1000,
                     " s, and no node can take over meanwhile: ", facts.coordinator_why));
  }
  if (facts.tolerated < 0) {
    reasons->push_back("too few replicas are up: nothing more is acknowledged");
  } else if (facts.tolerated < facts.tolerable) {
    reasons->push_back(absl::StrCat("can lose ", facts.tolerated,
                                    facts.tolerated == 1 ? " node" : " nodes", " now, and ",
                                    facts.tolerable, " when all replicas are in sync"));
  }
  for (const ClusterFacts::Replicas& node : facts.out_of_sync) {
    reasons->push_back(absl::StrCat(
        "node ", node.node,
        node.present ? " is out of sync with " : " is down, and out of sync with ",
        node.behind.size() == facts.machines ? "every machine" : absl::StrJoin(node.behind, ", ")));
  }
  if (facts.paused) {
    reasons->push_back(absl::StrCat("automatic failover is paused by ", facts.paused_why,
                                    " (buffer-ctl failover resume)"));
  }
  for (const uint32_t node : facts.drained) {
    reasons->push_back(absl::StrCat("node ", node, " is drained (buffer-ctl undrain ", node, ")"));
  }
}

void AddClusterMetrics(const ClusterPage& page, MetricFamilies* out) {
  const ClusterFacts& facts = page.facts;
  if (facts.node == 0) return;
  out->Gauge("forebay_cluster_node", "The id of this node.", facts.node);
  out->Gauge("forebay_cluster_leads", "1 if this node leads.", facts.leader == facts.node ? 1 : 0);
  out->Gauge("forebay_cluster_leader", "The node that leads; 0: none has led yet.", facts.leader);
  out->Gauge("forebay_cluster_epoch", "Of its reign.", D(facts.epoch));
  out->Gauge("forebay_cluster_tolerated_failures",
             "So many nodes can be lost now; -1: the cluster cannot go on.", facts.tolerated);
  out->Gauge("forebay_cluster_tolerable_failures",
             "The same with all replicas in sync on nodes that are up.", facts.tolerable);
  out->Gauge("forebay_cluster_paused", "1 while automatic failover is paused.",
             facts.paused ? 1 : 0);
  out->Gauge("forebay_cluster_drained_nodes", "Nodes that are to have no replicas.",
             D(facts.drained.size()));
  out->Gauge("forebay_coordinator_reachable", "1 if etcd answered the newest call.",
             facts.coordinator_reachable ? 1 : 0);
  out->Gauge("forebay_coordinator_away_seconds", "Since when it did not answer.",
             D(facts.coordinator_away_ms) / 1000);
  AddReplicas(page, out);
  AddPeers(page, out);
}

}  // namespace forebay::server
