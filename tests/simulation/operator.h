// The operator: creates sources and tasks, changes settings at run time, quarantines and requeues,
// starts evaluations, and mistypes.
//
// Not thread-safe. It outlives the events that it asked for.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/simulation/world.h"

namespace forebay::simulation {

class Operator {
 public:
  explicit Operator(World* world) : world_(*world) {}

  // Puts all sources and tasks in place, then makes a round each second.
  void Start();
  // Everything as it was meant to be.
  void Heal();

 private:
  void PutBack();
  void PutSource(const codec::SourceSettings& settings, bool with_tasks);
  void AddTasks(SourceId source, uint32_t first, uint32_t count);
  void AddTasksAt(ShardId shard, shard::AddTasks tasks);
  void Round();
  void ChangeSource();
  void Quarantine();
  void Drop();
  void Requeue(SourceId source);
  void GoBack();
  void StartEval();
  void WatchEvals();

  World& world_;
  uint32_t tasks_ = 0;                     // of each source, so far
  std::map<EvalRunId, uint64_t> running_;  // when it was asked for, ms
};

}  // namespace forebay::simulation
