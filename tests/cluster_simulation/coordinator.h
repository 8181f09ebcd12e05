// A model of etcd: keys with revisions, compare-and-swap, watches; with what is odd about it. An
// answer may be lost although the swap was done, or the swap be done after its asker has given up;
// news come late, twice, not at all, or leave out what came between; all of it is away for a while.
//
// Not thread-safe. Leases are not modelled: nothing of the protocol looks at them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replication/output.h"
#include "tests/cluster_simulation/network.h"
#include "tests/cluster_simulation/options.h"
#include "tests/cluster_simulation/stats.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"

namespace forebay::cluster_simulation {

class Coordinator {
 public:
  using Revision = cluster::ConfigurationRevision;
  // Hands a value to a node; the node may be down.
  using News =
      std::function<void(NodeId, uint32_t machine, Revision, const cluster::Configuration&)>;
  using Changed = std::function<void(uint32_t machine, const cluster::Configuration&)>;

  Coordinator(const HistoryOptions& options, simulation::EventQueue* queue, simulation::Dice* dice,
              Stats* stats, Network* network, News news, Changed changed)
      : options_(options),
        queue_(queue),
        dice_(dice),
        stats_(stats),
        network_(network),
        news_(std::move(news)),
        changed_(std::move(changed)) {}

  void Create(const cluster::Configuration& first);
  cluster::Configuration At(uint32_t machine) const;
  // What stands there, and what was asked for and may still come to stand there.
  std::vector<cluster::Configuration> Possible(uint32_t machine) const;

  // `answer` is called exactly once.
  void Ask(NodeId node, uint32_t machine, const replication::Swap& swap,
           std::function<void(replication::SwapAnswer)> answer);
  // An operator's, which is not lost.
  void SwapNow(uint32_t machine, const cluster::Configuration& next) { Set(machine, next); }
  // The current value as news, if it can be had.
  void Read(NodeId node, uint32_t machine);

  void GoAway(uint64_t for_ms) { away_until_ms_ = queue_->now_ms() + for_ms; }
  void Heal();

 private:
  struct Key {
    Revision revision;
    std::string value;
    std::vector<cluster::Configuration> asked;  // in its place
  };
  bool Away() const { return queue_->now_ms() < away_until_ms_; }
  void Set(uint32_t machine, const cluster::Configuration& next);
  void Tell(NodeId node, uint32_t machine, const Key& key);

  static constexpr uint64_t kAskTimeoutMs = 400;

  const HistoryOptions& options_;
  simulation::EventQueue* const queue_;
  simulation::Dice* const dice_;
  Stats* const stats_;
  Network* const network_;
  const News news_;
  const Changed changed_;
  std::vector<Key> keys_;
  uint64_t revision_ = 0;
  uint64_t away_until_ms_ = 0;
  bool faults_ = true;
};

}  // namespace forebay::cluster_simulation
