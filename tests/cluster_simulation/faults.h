// What goes wrong in a history, and when.
//
// Not thread-safe. Logs are lost or rot only while every entry that was acknowledged is still whole
// on another member of the set: what is kept twice may be lost once.
#pragma once

#include <cstdint>

#include "tests/cluster_simulation/world.h"

namespace forebay::cluster_simulation {

class Faults {
 public:
  explicit Faults(World* world) : world_(*world) {}

  void Start();
  // Ends all faults and begins no more.
  void Heal();

 private:
  void Next();
  void Crash();
  void PowerLoss();
  void CrashOne(NodeId id, bool rot, bool lose);
  void Freeze();
  void Partition();
  void CutFor(NodeId from, NodeId to, uint64_t for_ms);
  void SlowDisk();
  void Switchover();
  void ChangePlacement();
  bool MayBeDamaged(NodeId id) const;
  Node& Draw();

  World& world_;
  bool healed_ = false;
  uint64_t begun_ = 0;
};

}  // namespace forebay::cluster_simulation
