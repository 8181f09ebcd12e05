// What a ledger is given at its start.
//
// Plain value.
#pragma once

#include <cstdint>

#include "base/mutations.h"

namespace forebay::ledger {

struct Options {
  uint64_t run_seed = 0;
  uint32_t shards = 1;
  // Held to by the primary, not by Apply: it may be another one at the next start, and the log
  // still has to give the same state. At most kOpenStepsMax.
  uint32_t open_steps_max = 2;
  Mutations mutations = {};
};

}  // namespace forebay::ledger
