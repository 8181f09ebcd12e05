// The journal of a node of a cluster: each machine is a replica, which follows until the node
// leads.
//
// Follow each machine, then, when all of them serve here, recover it and open its log. One thread;
// the logs belong to their loops. The states outlive the replicas.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "node/journal.h"
#include "node/machine_replica.h"

namespace forebay::node {

class ReplicatedJournal final : public Journal {
 public:
  using OpenReplica = std::function<absl::StatusOr<std::shared_ptr<MachineReplica>>(
      const std::string& machine, ReplicatedState* state)>;
  ReplicatedJournal(uint64_t run_seed, OpenReplica open)
      : run_seed_(run_seed), open_(std::move(open)) {}

  absl::Status Follow(shard::State* state) override;
  absl::Status Follow(ledger::State* state) override;
  absl::StatusOr<LogPosition> Recover(shard::State* state) override;
  absl::StatusOr<LogPosition> Recover(ledger::State* state) override;
  absl::StatusOr<std::unique_ptr<Log<shard::Command>>> OpenLog(const shard::State& state,
                                                               LogPosition applied,
                                                               LogOwner owner) override;
  absl::StatusOr<std::unique_ptr<Log<ledger::Command>>> OpenLog(const ledger::State& state,
                                                                LogPosition applied,
                                                                LogOwner owner) override;

 private:
  struct Machine {
    const void* state;  // whose
    std::unique_ptr<ReplicatedState> following;
    std::shared_ptr<MachineReplica> replica;
  };
  absl::Status FollowMachine(const std::string& name, const void* state,
                             std::unique_ptr<ReplicatedState> following);
  const std::shared_ptr<MachineReplica>& ReplicaOf(const void* state) const;
  template <class Command, class State>
  absl::StatusOr<std::unique_ptr<Log<Command>>> OpenMachine(const State& state, LogPosition applied,
                                                            LogOwner owner);

  const uint64_t run_seed_;
  const OpenReplica open_;
  std::vector<Machine> machines_;
};

}  // namespace forebay::node
