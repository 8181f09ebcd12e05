#include "tests/cluster_simulation/faults.h"

#include <algorithm>
#include <utility>

#include "cluster/transitions.h"
#include "tests/cluster_simulation/node.h"

namespace forebay::cluster_simulation {

void Faults::Start() {
  world_.queue.After(world_.options.clients_begin_ms + world_.dice.Between(1'000, 3'000),
                     [this] { Next(); });
}

void Faults::Heal() {
  healed_ = true;
  world_.network.Heal();
  world_.coordinator.Heal();
  for (const auto& node : world_.nodes) node->Heal();
}

Node& Faults::Draw() { return *world_.nodes[world_.dice.Below(world_.nodes.size())]; }

void Faults::Next() {
  if (healed_ || begun_++ >= world_.options.faults_max) return world_.queue.Idle();
  const HistoryOptions& o = world_.options;
  simulation::Dice& dice = world_.dice;
  uint64_t draw = dice.Below(o.crash + o.power_loss + o.freeze + o.partition + o.coordinator_away +
                             o.slow_disk + o.switchover + o.placement);
  const auto is = [&draw](uint32_t weight) {
    const bool hit = draw < weight;
    draw -= hit ? 0 : weight;
    return hit;
  };
  if (is(o.crash)) {
    Crash();
  } else if (is(o.power_loss)) {
    PowerLoss();
  } else if (is(o.freeze)) {
    Freeze();
  } else if (is(o.partition)) {
    Partition();
  } else if (is(o.coordinator_away)) {
    world_.stats.Count(Fault::kCoordinatorAway);
    world_.coordinator.GoAway(dice.Between(500, 8'000));
  } else if (is(o.slow_disk)) {
    SlowDisk();
  } else if (is(o.switchover)) {
    Switchover();
  } else {
    ChangePlacement();
  }
  world_.queue.After(dice.Between(1, 2 * o.fault_gap_ms), [this] { Next(); });
}

// Of each machine another member of the set, and of each that was asked for, has everything under
// the incarnation that counts.
bool Faults::MayBeDamaged(NodeId id) const {
  for (uint32_t m = 0; m < world_.options.machines; ++m) {
    for (const cluster::Configuration& set : world_.coordinator.Possible(m)) {
      const bool other = std::any_of(set.in_sync.begin(), set.in_sync.end(), [&](NodeId node) {
        return node != id && world_.nodes[node.value - 1]->disk(m).Whole(set.incarnation(node));
      });
      if (!other) return false;
    }
  }
  return true;
}

void Faults::CrashOne(NodeId id, bool rot, bool lose) {
  Node& node = *world_.nodes[id.value - 1];
  if (!node.up()) return;
  const bool damage = (rot || lose) && MayBeDamaged(id);
  node.Crash(rot && damage);
  if (lose && damage) {
    world_.stats.Count(Fault::kDiskLost);
    node.LoseDisks();
  }
  const uint64_t away =
      world_.dice.OneIn(3) ? world_.dice.Between(1'000, 8'000) : world_.dice.Between(20, 800);
  world_.queue.After(away, [&node, this] {
    if (node.up()) return world_.queue.Idle();
    node.Start();
  });
}

void Faults::Crash() {
  world_.stats.Count(Fault::kCrash);
  const HistoryOptions& o = world_.options;
  const bool rot = world_.dice.Below(6) < o.rot;
  const bool lose = !rot && world_.dice.Below(6) < o.disk_loss;
  CrashOne(Draw().id(), rot, lose);
}

void Faults::PowerLoss() {
  world_.stats.Count(Fault::kPowerLoss);
  for (const auto& node : world_.nodes)
    CrashOne(node->id(), world_.dice.Below(12) < world_.options.rot, false);
}

void Faults::Freeze() {
  Node& node = Draw();
  if (!node.up()) return;
  world_.stats.Count(Fault::kFreeze);
  node.Freeze(world_.dice.OneIn(3) ? world_.dice.Between(2'000, 12'000)
                                   : world_.dice.Between(200, 2'000));
}

void Faults::CutFor(NodeId from, NodeId to, uint64_t for_ms) {
  world_.network.Cut(from, to);
  world_.queue.After(for_ms, [this, from, to] { world_.network.Mend(from, to); });
}

void Faults::Partition() {
  simulation::Dice& dice = world_.dice;
  const NodeId node = Draw().id();
  const NodeId other = Draw().id();
  const uint64_t for_ms = dice.Between(200, 6'000);
  const uint64_t kind = dice.Below(4);
  if (kind == 0) {
    if (node == other) return;
    world_.stats.Count(Fault::kOneWay);
    return CutFor(node, other, for_ms);
  }
  world_.stats.Count(kind == 1   ? Fault::kCutOff
                     : kind == 2 ? Fault::kIsolated
                                 : Fault::kNoCoordinator);
  if (kind >= 2) {
    CutFor(node, kCoordinator, for_ms);
    CutFor(kCoordinator, node, for_ms);
  }
  if (kind == 3) return;
  for (const auto& peer : world_.nodes) {
    if (peer->id() == node) continue;
    CutFor(node, peer->id(), for_ms);
    CutFor(peer->id(), node, for_ms);
  }
}

void Faults::SlowDisk() {
  Node& node = Draw();
  world_.stats.Count(Fault::kSlowDisk);
  node.BeSlow(world_.dice.Between(50, 3'000));
  world_.queue.After(world_.dice.Between(500, 5'000), [&node] { node.BeSlow(0); });
}

void Faults::Switchover() {
  const auto machine = static_cast<uint32_t>(world_.dice.Below(world_.options.machines));
  const cluster::Configuration configuration = world_.coordinator.At(machine);
  if (configuration.primary == NodeId()) return;
  const NodeId to = configuration.in_sync[world_.dice.Below(configuration.in_sync.size())];
  world_.nodes[configuration.primary.value - 1]->HandOver(machine, to);
}

void Faults::ChangePlacement() {
  const auto machine = static_cast<uint32_t>(world_.dice.Below(world_.options.machines));
  const cluster::Configuration now = world_.coordinator.At(machine);
  const NodeId node = Draw().id();
  cluster::Event event = cluster::Place{node};
  if (now.Leaving(node)) {
    event = now.InSync(node) ? cluster::Event(cluster::Stay{node}) : cluster::Displace{node};
  } else if (now.placed(node)) {
    event = cluster::Retire{node};
  }
  const auto next = cluster::Next(now, event);
  if (!next.ok()) return;
  world_.stats.Count(Fault::kPlacement);
  world_.coordinator.SwapNow(machine, *next);
}

}  // namespace forebay::cluster_simulation
