// What kind of history a seed is: how large, and with how much trouble of which kind.
//
// Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "replication/options.h"

namespace forebay::cluster_simulation {

struct HistoryOptions {
  uint64_t seed = 0;
  uint32_t nodes = 3;
  uint32_t replicas = 3;  // of each machine
  uint32_t min_in_sync = 2;
  uint32_t machines = 1;
  uint32_t clients = 3;         // of each machine
  uint64_t faulty_ms = 40'000;  // of virtual time; then everything heals
  uint64_t clients_begin_ms = 0;
  uint64_t client_timeout_ms = 700;  // then a client asks another node
  uint64_t think_ms_max = 60;        // of a client, between operations
  uint64_t tick_ms = 20;
  uint32_t clock_error_percent = 0;  // clocks of nodes run so much faster or slower, at most
  uint64_t faults_max = UINT64_MAX;
  uint64_t fault_gap_ms = 1'500;  // between faults that begin, on average
  // Of messages between replicas, and to and from the coordinator.
  double loss = 0, repeat = 0, late = 0;
  uint64_t delay_ms_max = 5;
  uint64_t late_ms_max = 4'000;
  // Of the coordinator: answers that are lost, news that come late or never.
  double swap_answer_lost = 0, watch_lost = 0, watch_late = 0;
  uint64_t sync_ms_max = 4;
  uint64_t snapshot_every = 40;  // entries
  uint64_t hash_every = 8;
  // Weights of the faults, 0: never.
  uint32_t crash = 4, power_loss = 1, freeze = 3, partition = 4, coordinator_away = 1;
  uint32_t slow_disk = 2, disk_loss = 1, rot = 1, switchover = 1, placement = 1;

  replication::Options replication;
  replication::Mutations mutations;
  bool accept_duplicates = false;  // the machine takes an operation again
  bool diverge = false;            // the machine does not do the same everywhere
  bool trust_cut_log = false;      // a log that was cut stays the same incarnation

  std::string Summary() const;
};

HistoryOptions DrawHistory(uint64_t seed);

}  // namespace forebay::cluster_simulation
