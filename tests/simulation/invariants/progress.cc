#include "tests/simulation/invariants/progress.h"

namespace forebay::simulation {

void Progress::Healed(uint64_t now_ms, uint64_t steps) {
  healed_ms_ = now_ms;
  steps_ = steps;
}

bool Progress::Shown(uint64_t steps) const { return steps >= steps_ + kSteps; }

bool Progress::Late(uint64_t now_ms, uint64_t steps) const {
  return !Shown(steps) && now_ms > healed_ms_ + kWithinMs;
}

}  // namespace forebay::simulation
