#include "cluster/placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace forebay::cluster {
namespace {

class Planner {
 public:
  Planner(const std::vector<Configuration>& machines, const std::set<NodeId>& available,
          uint32_t replicas)
      : machines_(machines), available_(available), replicas_(replicas) {
    for (const NodeId node : available_) load_[node] = 0;
    for (const Configuration& machine : machines_) {
      for (const NodeId node : Staying(machine)) {
        if (available_.contains(node)) ++load_[node];
      }
    }
  }

  std::vector<Move> Plan() {
    bool settled = true;
    for (uint32_t m = 0; m < machines_.size(); ++m) {
      const std::optional<Event> event = EventFor(machines_[m]);
      settled = settled && !event && machines_[m].leaving.empty();
      if (event && Next(machines_[m], *event).ok()) moves_.push_back({m, *event});
    }
    if (settled) Balance();
    return std::move(moves_);
  }

 private:
  static std::vector<NodeId> Staying(const Configuration& machine) {
    std::vector<NodeId> staying;
    for (const auto& [node, incarnation] : machine.incarnations) {
      if (!machine.Leaving(node)) staying.push_back(node);
    }
    return staying;
  }

  // The least loaded node without a replica of the machine, or one that was to leave.
  std::optional<NodeId> LeastLoaded(const Configuration& machine) const {
    std::optional<NodeId> least;
    for (const auto& [node, load] : load_) {
      if (machine.placed(node) && !machine.Leaving(node)) continue;
      if (!least || load < load_.at(*least)) least = node;
    }
    return least;
  }

  std::optional<Event> EventFor(const Configuration& machine) {
    for (const NodeId node : machine.leaving) {
      if (!machine.InSync(node)) return Displace{node};
    }
    uint32_t good = 0, good_in_sync = 0;
    for (const NodeId node : Staying(machine)) {
      if (!available_.contains(node)) continue;
      ++good;
      good_in_sync += machine.InSync(node) ? 1 : 0;
    }
    if (good < replicas_) {
      const std::optional<NodeId> node = LeastLoaded(machine);
      if (!node) return std::nullopt;
      ++load_[*node];
      return machine.Leaving(*node) ? Event(Stay{*node}) : Event(Place{*node});
    }
    if (good_in_sync < replicas_) return std::nullopt;  // they are coming
    return Surplus(machine, good > replicas_);
  }

  // One on a node that is not available; else, if there are too many, one on the fullest node.
  std::optional<Event> Surplus(const Configuration& machine, bool too_many) {
    std::optional<NodeId> fullest;
    for (const NodeId node : Staying(machine)) {
      if (!available_.contains(node)) return Retire{node};
      if (!fullest || load_[node] > load_[*fullest] ||
          (load_[node] == load_[*fullest] && *fullest == machine.primary))
        fullest = node;
    }
    if (!too_many || !fullest) return std::nullopt;
    --load_[*fullest];
    return Retire{*fullest};
  }

  // One replica from the fullest node to the emptiest: there first, here it leaves when that one is
  // in sync.
  void Balance() {
    const auto by_load = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto least = std::min_element(load_.begin(), load_.end(), by_load);
    if (least == load_.end()) return;
    uint64_t most = 0;
    std::optional<uint32_t> from;
    for (uint32_t m = 0; m < machines_.size(); ++m) {
      if (machines_[m].placed(least->first)) continue;
      for (const NodeId node : Staying(machines_[m])) {
        if (!available_.contains(node) || load_[node] <= most) continue;
        most = load_[node];
        from = m;
      }
    }
    if (!from || most < least->second + 2) return;
    const Event event = Place{least->first};
    if (Next(machines_[*from], event).ok()) moves_.push_back({*from, event});
  }

  const std::vector<Configuration>& machines_;
  const std::set<NodeId>& available_;
  const uint32_t replicas_;
  std::map<NodeId, uint64_t> load_;  // of the available nodes, with what this plan places
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> PlanPlacement(const std::vector<Configuration>& machines,
                                const std::set<NodeId>& available, uint32_t replicas) {
  return Planner(machines, available, replicas).Plan();
}

int FailuresTolerated(const Configuration& configuration, const std::set<NodeId>& up) {
  int placed = 0, in_sync = 0;
  for (const auto& [node, incarnation] : configuration.incarnations) {
    if (!up.contains(node)) continue;
    ++placed;
    in_sync += configuration.InSync(node) ? 1 : 0;
  }
  return std::max(-1, std::min(in_sync - 1, placed - static_cast<int>(configuration.min_in_sync)));
}

}  // namespace forebay::cluster
