// Commands that let go of rollouts; messages.h has the others.
//
// Plain values.
#pragma once

#include <vector>

#include "base/ids.h"

namespace forebay::shard {

// Drops the youngest incomplete group that holds bytes, when the payload budget is spent and
// nothing else can free memory. With `spared`, only of other train sources: those that the waiting
// step cannot take from; and with no incomplete one left, the ready group of theirs that grows
// stale first.
struct DropForBudget {
  std::vector<SourceId> spared;
  template <class A>
  void Fields(A& a) {
    a(spared);
  }
};

// A payload that cannot be read back any more, and the attempt whose rollout, or unfinished part,
// it holds.
struct DamagedPayload {
  AttemptId attempt;
  PayloadId payload;
  template <class A>
  void Fields(A& a) {
    a(attempt, payload);
  }
};

// Drops what is lost. A rollout that a step holds stays in it until the step gives its group back;
// the ledger is told, which plans the step anew.
struct DropDamaged {
  std::vector<DamagedPayload> payloads;
  template <class A>
  void Fields(A& a) {
    a(payloads);
  }
};

// An operator drops rollouts of a source that no step holds: all that are ready, and those named.
// Either all that are named go, or the command is refused.
struct DropByOperator {
  SourceId source;
  bool ready = false;
  std::vector<RolloutId> rollouts;
  template <class A>
  void Fields(A& a) {
    a(source, ready, rollouts);
  }
};

}  // namespace forebay::shard
