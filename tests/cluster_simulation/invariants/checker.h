// Hands what is seen of a history to its invariants, and remembers the first violation.
//
// Not thread-safe. It sees everything, also what no replica could.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cluster/configuration.h"
#include "replication/entry_log.h"
#include "replication/output.h"
#include "tests/cluster_simulation/invariants/acknowledged_once.h"
#include "tests/cluster_simulation/invariants/equal_position_equal_hash.h"
#include "tests/cluster_simulation/invariants/in_sync_holds_committed.h"
#include "tests/cluster_simulation/invariants/one_history.h"
#include "tests/cluster_simulation/machine.h"
#include "tests/cluster_simulation/stats.h"

namespace forebay::cluster_simulation {

struct Violation {
  std::string invariant;
  std::string what;
};

class Checker {
 public:
  Checker(uint32_t machines, Stats* stats, InSyncHoldsCommitted::LogOf log_of)
      : stats_(stats),
        history_(machines),
        in_sync_(machines, std::move(log_of)),
        hashes_(machines),
        acknowledged_(machines) {}

  const std::optional<Violation>& violation() const { return violation_; }
  void Fail(const std::string& invariant, const std::string& what) {
    if (!violation_) violation_ = Violation{invariant, what};
  }

  void OnConfiguration(uint32_t machine, const cluster::Configuration& configuration) {
    Note(OneHistory::kName, history_.OnConfiguration(machine, configuration));
    Note(InSyncHoldsCommitted::kName, in_sync_.OnConfiguration(machine, configuration));
  }
  void OnReign(uint32_t machine, cluster::NodeId node, const replication::RoleChange& change,
               const replication::EntryLog& log) {
    if (history_.reigns(machine) > 0) ++stats_->failovers;
    if (change.from_cut_log) stats_->Count(Fault::kLedFromCutLog);
    Note(OneHistory::kName, history_.OnReign(machine, node, change.epoch, log));
  }
  void OnCommitted(uint32_t machine, cluster::NodeId node, LogPosition position,
                   const replication::Entry& entry) {
    const uint64_t known = history_.committed(machine).value;
    Note(OneHistory::kName, history_.OnCommitted(machine, node, position, entry));
    if (history_.committed(machine).value == known) return;
    ++stats_->committed;
    Note(InSyncHoldsCommitted::kName, in_sync_.OnCommitted(machine, {entry.epoch, position}));
  }
  void OnState(uint32_t machine, cluster::NodeId node, LogPosition position, uint64_t hash) {
    Note(EqualPositionEqualHash::kName, hashes_.OnState(machine, node, position, hash));
  }
  void OnAcknowledged(uint32_t machine, const Operation& operation, uint64_t count) {
    ++stats_->acknowledged;
    Note(AcknowledgedOnce::kName, acknowledged_.OnAcknowledged(machine, operation, count));
  }
  void OnServing(uint32_t machine, cluster::NodeId node, cluster::Epoch epoch,
                 const Machine& state) {
    Note(AcknowledgedOnce::kName, acknowledged_.OnServing(machine, node, epoch, state));
  }
  uint64_t HistoryHash(uint32_t machine) const { return history_.Hash(machine); }
  // A replica has seen something itself that must not be.
  void OnStopped(uint32_t machine, cluster::NodeId node, const std::string& why);

 private:
  void Note(const char* invariant, const std::string& what) {
    if (!what.empty()) Fail(invariant, what);
  }

  Stats* const stats_;
  std::optional<Violation> violation_;
  OneHistory history_;
  InSyncHoldsCommitted in_sync_;
  EqualPositionEqualHash hashes_;
  AcknowledgedOnce acknowledged_;
};

}  // namespace forebay::cluster_simulation
