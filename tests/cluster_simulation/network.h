// The ways between nodes, and between them and the coordinator and the clients: messages are lost,
// repeated, late and out of order, and a way may be cut in one direction.
//
// Not thread-safe. Nodes have the numbers from 1; the coordinator is 0, clients have no number and
// are never cut off.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include "cluster/configuration.h"
#include "tests/cluster_simulation/options.h"
#include "tests/cluster_simulation/stats.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"

namespace forebay::cluster_simulation {

using cluster::NodeId;
inline constexpr NodeId kCoordinator{0};
inline constexpr NodeId kClient{UINT32_MAX};

class Network {
 public:
  Network(const HistoryOptions& options, simulation::EventQueue* queue, simulation::Dice* dice,
          Stats* stats)
      : options_(options), queue_(queue), dice_(dice), stats_(stats) {}

  void Cut(NodeId from, NodeId to) { cut_.emplace(from, to); }
  void Mend(NodeId from, NodeId to) { cut_.erase({from, to}); }
  bool IsCut(NodeId from, NodeId to) const { return cut_.contains({from, to}); }
  void Heal() {
    cut_.clear();
    faults_ = false;
  }

  void Deliver(NodeId from, NodeId to, std::function<void()> work) {
    if (IsCut(from, to)) return stats_->Count(Fault::kLost);
    if (faults_ && dice_->Chance(options_.loss)) return stats_->Count(Fault::kLost);
    if (faults_ && dice_->Chance(options_.repeat)) {
      stats_->Count(Fault::kRepeated);
      queue_->After(Delay(), work);
    }
    queue_->After(Delay(), std::move(work));
  }

 private:
  uint64_t Delay() {
    if (faults_ && dice_->Chance(options_.late)) {
      stats_->Count(Fault::kLate);
      return dice_->Between(options_.delay_ms_max, options_.late_ms_max);
    }
    return dice_->Between(1, options_.delay_ms_max);
  }

  const HistoryOptions& options_;
  simulation::EventQueue* const queue_;
  simulation::Dice* const dice_;
  Stats* const stats_;
  std::set<std::pair<NodeId, NodeId>> cut_;
  bool faults_ = true;
};

}  // namespace forebay::cluster_simulation
