// A daemon of the cluster: a replica of each machine that is placed on it, with disk and state.
//
// Not thread-safe. It crashes and freezes: what arrives while it is frozen is seen when it thaws,
// all at once and late.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "replication/replica.h"
#include "tests/cluster_simulation/disk.h"
#include "tests/cluster_simulation/machine.h"
#include "tests/cluster_simulation/world.h"

namespace forebay::cluster_simulation {

struct Reply {
  std::optional<uint64_t> count;  // else ask `leader`, if that is known, or anybody
  NodeId leader;
};
using Answer = std::function<void(const Reply&)>;

class Node {
 public:
  Node(World* world, NodeId id);

  void Start();
  void Crash(bool rot);
  void LoseDisks();  // of a node that is down
  void Freeze(uint64_t for_ms);
  void BeSlow(uint64_t sync_ms);
  void Heal();

  bool up() const { return life_ > 0 && up_; }
  NodeId id() const { return id_; }
  // Null while it is down, or after it stopped itself.
  const replication::Replica* replica(uint32_t machine) const;
  const Disk& disk(uint32_t machine) const { return *hosted_[machine].disk; }
  const Machine& state(uint32_t machine) const { return *hosted_[machine].state; }

  // What arrives.
  void OnNews(uint32_t machine, cluster::ConfigurationRevision revision,
              const cluster::Configuration& configuration);
  void OnBytes(uint32_t machine, const std::string& bytes);
  void OnSnapshot(uint32_t machine, replication::LogPlace base, const std::string& state);
  void OnRequest(uint32_t machine, const Operation& operation, Answer answer);
  void HandOver(uint32_t machine, NodeId to);

 private:
  struct Hosted {
    uint32_t machine = 0;
    std::unique_ptr<Disk> disk;
    std::unique_ptr<replication::Replica> replica;
    std::unique_ptr<Machine> state;
    LogPosition applied;
    LogPosition saved;  // of the last snapshot that was begun
    std::map<Operation, Answer> waiting;
  };

  // By the node's own clock.
  uint64_t Now() const;
  // Runs it now, or when the node thaws; never if it has crashed since.
  void Run(std::function<void()> work);
  void Open(Hosted& hosted);
  void Tick();
  // Does what the replica asks for, and applies what is committed, until nothing is left.
  void Pump(Hosted& hosted);
  void Do(Hosted& hosted, replication::Output output);
  bool Apply(Hosted& hosted);
  void SendSnapshot(Hosted& hosted, NodeId to);
  void SaveSnapshot(Hosted& hosted);

  World& world_;
  const NodeId id_;
  const uint64_t clock_offset_ms_;
  const uint64_t clock_percent_;
  bool up_ = false;
  uint64_t life_ = 0;
  uint64_t frozen_until_ms_ = 0;
  std::vector<Hosted> hosted_;
};

}  // namespace forebay::cluster_simulation
