// What the ledger is asked of checkpoints and of going back; commands.h has all else.
//
// Plain values; not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "codec/keep_rule.h"

namespace forebay::ledger {

// The trainer's own checkpoint covers the steps up to this one.
struct CheckpointStep {
  Generation generation;
  StepId step;
  codec::KeepRule keep;  // what Propose finds in the configuration
  template <class A>
  void Fields(A& a) {
    a(generation, step, keep);
  }
};

// Takes back the steps after `step` and begins a new branch of versions.
struct Rewind {
  uint64_t request_id = 0;  // the same again changes nothing, and is answered the same
  Generation generation;    // of the trainer that asks; 0: an operator does
  StepId step;
  bool replay = false;  // serve them again as they were, instead of dropping their rollouts
  std::string reason;   // for people
  template <class A>
  void Fields(A& a) {
    a(request_id, generation, step, replay, reason);
  }
};

// The oldest committed steps whose payloads stay let them go, until no more than this stays, and so
// do rollouts that are kept for people: the limit is lower now, or the store has no room.
struct TrimRetained {
  uint64_t bytes_max = 0;
  codec::KeepRule keep;
  template <class A>
  void Fields(A& a) {
    a(bytes_max, keep);
  }
};

}  // namespace forebay::ledger
