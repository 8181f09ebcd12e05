// What a replica has on its disk: one log and one snapshot. Writes are done in order, those that
// wait are synced together, and a crash leaves some of those that were not synced, perhaps torn.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "replication/entry_log.h"
#include "replication/output.h"
#include "tests/cluster_simulation/options.h"
#include "tests/cluster_simulation/stats.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"

namespace forebay::cluster_simulation {

class Disk {
 public:
  using OnSynced = std::function<void(replication::LogGeneration, LogPosition)>;

  Disk(const HistoryOptions& options, simulation::EventQueue* queue, simulation::Dice* dice,
       Stats* stats)
      : options_(options), queue_(queue), dice_(dice), stats_(stats) {}

  // A process begins, and hears of its syncs.
  void Open(OnSynced on_synced) { on_synced_ = std::move(on_synced); }
  void Write(replication::LogWrite write);
  // Of the own state: then the log up to there goes. Of a peer's: the log stays.
  void Save(replication::LogPlace base, std::string state, bool own, std::function<void()> done);
  void BeSlow(uint64_t sync_ms) { slow_ms_ = sync_ms; }

  // The process ends. `rot`: some of what was synced at the end is bad too.
  void Crash(bool rot);
  // Everything is gone, and the process is not running.
  void Lose();

  const replication::EntryLog& log() const { return log_; }
  replication::LogPlace snapshot_base() const { return snapshot_base_; }
  const std::string& snapshot() const { return snapshot_; }
  replication::Incarnation incarnation() const { return incarnation_; }
  replication::Incarnation kept_since() const { return kept_since_; }
  // The log still holds what it held under that incarnation when it was synced.
  bool Whole(replication::Incarnation incarnation) const {
    return incarnation >= whole_since_ && incarnation <= incarnation_;
  }
  replication::Recovered Recover();

 private:
  void Sync();
  void Do(const replication::LogWrite& write);
  void NextIncarnation();

  const HistoryOptions& options_;
  simulation::EventQueue* const queue_;
  simulation::Dice* const dice_;
  Stats* const stats_;
  OnSynced on_synced_;
  uint64_t life_ = 0;
  uint64_t slow_ms_ = 0;
  bool syncing_ = false;
  std::deque<replication::LogWrite> waiting_;

  replication::EntryLog log_;
  replication::LogPlace snapshot_base_;
  std::string snapshot_;
  replication::Incarnation incarnation_{1}, kept_since_{1}, whole_since_{1};
};

}  // namespace forebay::cluster_simulation
