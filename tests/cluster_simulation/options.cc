#include "tests/cluster_simulation/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/dice.h"

namespace forebay::cluster_simulation {

HistoryOptions DrawHistory(uint64_t seed) {
  simulation::Dice dice(Mix64(seed ^ 0xc105ull));
  HistoryOptions o;
  o.seed = seed;
  o.nodes = static_cast<uint32_t>(dice.Between(3, 5));
  o.replicas = static_cast<uint32_t>(dice.Between(2, std::min<uint64_t>(o.nodes, 4)));
  if (dice.OneIn(2)) o.replicas = 3;
  o.min_in_sync = static_cast<uint32_t>(dice.Between(1, 2));
  if (dice.OneIn(2)) o.min_in_sync = 2;
  o.machines = static_cast<uint32_t>(dice.Between(1, 2));
  o.clients = static_cast<uint32_t>(dice.Between(2, 5));
  o.faulty_ms = dice.Between(10'000, 40'000);
  o.think_ms_max = dice.Between(5, 150);
  o.client_timeout_ms = dice.Between(100, 1'000);
  o.fault_gap_ms = dice.Between(300, 3'000);
  if (dice.OneIn(2)) o.loss = dice.Unit() * 0.1;
  if (dice.OneIn(2)) o.repeat = dice.Unit() * 0.1;
  if (dice.OneIn(2)) o.late = dice.Unit() * 0.05;
  o.delay_ms_max = dice.Between(1, 30);
  if (dice.OneIn(2)) o.clock_error_percent = static_cast<uint32_t>(dice.Between(1, 40));
  if (dice.OneIn(2)) o.swap_answer_lost = dice.Unit() * 0.4;
  if (dice.OneIn(2)) o.watch_lost = dice.Unit() * 0.5;
  if (dice.OneIn(2)) o.watch_late = dice.Unit() * 0.5;
  o.sync_ms_max = dice.Between(1, 20);
  o.snapshot_every = dice.Between(10, 200);
  for (uint32_t* weight : {&o.crash, &o.power_loss, &o.freeze, &o.partition, &o.coordinator_away,
                           &o.slow_disk, &o.disk_loss, &o.rot, &o.switchover, &o.placement}) {
    if (dice.OneIn(3)) *weight = static_cast<uint32_t>(dice.Below(6));
  }
  if (o.crash + o.freeze + o.partition == 0) o.crash = 1;
  replication::Options& r = o.replication;
  r.batch_bytes_max = dice.Between(60, 1'000);
  r.window_bytes_max = 2'000 + r.batch_bytes_max * dice.Between(1, 8);
  r.pending_bytes_max = dice.Between(500, 20'000);
  r.retained_bytes_max = dice.Between(200, 8'000);
  r.catch_up_bytes_max = r.retained_bytes_max + 60'000;
  return o;
}

std::string HistoryOptions::Summary() const {
  return absl::StrCat(nodes, " nodes, ", machines, " machines of ", replicas, " replicas, ",
                      min_in_sync, " in sync at least, ", clients, " clients each, ",
                      faulty_ms / 1000, " s of faults every ", fault_gap_ms, " ms, loss ", loss,
                      ", repeat ", repeat, ", late ", late, ", delay up to ", delay_ms_max,
                      " ms, sync up to ", sync_ms_max, " ms");
}

}  // namespace forebay::cluster_simulation
