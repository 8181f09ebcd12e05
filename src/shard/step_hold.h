// What a shard keeps of steps: the groups that they hold, and what admission still counts of those
// that are committed.
//
// Replicated state; plain values and functions over them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "rollout/tables.h"

namespace forebay::shard {

// Groups that a step holds here.
struct StepHold {
  StepId step;
  Revision revision;
  rollout::OrderList groups;
  template <class A>
  void Fields(A& a) {
    a(step, revision, groups);
  }
};

// By step; null if there is none.
StepHold* FindHold(std::vector<StepHold>* holds, StepId step);
// Found or made, under this revision.
StepHold& HoldOf(std::vector<StepHold>* holds, StepId step, Revision revision);
std::vector<uint32_t> GroupsOf(const GroupTable& groups, const StepHold& hold);

// Rollouts of a committed step whose version is not published yet; admission counts them.
struct Unpublished {
  PolicyVersion next;
  SourceId source;
  uint64_t credits = 0;
  template <class A>
  void Fields(A& a) {
    a(next, source, credits);
  }
};

}  // namespace forebay::shard
