// What a node knows of its cluster, for status and metrics.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "node/machine_replica.h"
#include "peers/options.h"
#include "server/metric_families.h"

namespace forebay::server {

struct ClusterFacts {
  uint32_t node = 0;  // 0: the daemon is alone, and nothing else here is set
  uint32_t leader = 0;
  uint64_t epoch = 0;
  uint64_t machines = 0;
  int tolerated = -1;  // failures, now; -1: the cluster cannot go on
  int tolerable = 0;   // and if all were as the configuration wants it
  bool paused = false;
  std::string paused_why;
  std::vector<uint32_t> drained;
  struct Replicas {
    uint32_t node = 0;
    bool present = false;
    std::vector<std::string> behind;  // machines that it is not in sync with
  };
  std::vector<Replicas> out_of_sync;  // nodes with one at least
  bool coordinator_reachable = true;
  uint64_t coordinator_away_ms = 0;
  std::string coordinator_why;
};

// A sentence for each thing that somebody should look at, the gravest first.
void AddClusterReasons(const ClusterFacts& facts, std::vector<std::string>* reasons);

// Beside the facts what was looked at for one page.
struct ClusterPage {
  ClusterFacts facts;
  std::vector<std::pair<std::string, node::ReplicaView>> replicas;  // by machine
  peers::PeerStatsMap peers;
};
void AddClusterMetrics(const ClusterPage& page, MetricFamilies* out);

}  // namespace forebay::server
