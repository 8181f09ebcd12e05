// 13. After faults heal, the run makes progress within a stated virtual time.
//
// Not of the Checker's facts but of virtual time: what the run must have done so long after the
// last fault. Not thread-safe; lives for one history.
#pragma once

#include <cstdint>

namespace forebay::simulation {

class Progress {
 public:
  static constexpr uint64_t kWithinMs = 20 * 60 * 1000;
  static constexpr uint64_t kSteps = 2;
  static constexpr const char* kName = "13 progress after faults heal";

  void Healed(uint64_t now_ms, uint64_t steps);
  // Enough steps since.
  bool Shown(uint64_t steps) const;
  bool Late(uint64_t now_ms, uint64_t steps) const;

 private:
  uint64_t healed_ms_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace forebay::simulation
