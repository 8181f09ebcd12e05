// Draws of a history: everything random in it comes from one seed.
//
// A value; not thread-safe.
#pragma once

#include <cstdint>

#include "base/prng.h"

namespace forebay::simulation {

class Dice {
 public:
  explicit Dice(uint64_t seed) : prng_(seed) {}
  uint64_t Next() { return prng_.Next(); }
  // Uniform in [0, bound), bound > 0; in [least, most].
  uint64_t Below(uint64_t bound) { return prng_.Below(bound); }
  uint64_t Between(uint64_t least, uint64_t most) { return least + Below(most - least + 1); }
  double Unit() { return prng_.Unit(); }
  bool Chance(double probability) { return prng_.Unit() < probability; }
  // One in so many; never if 0.
  bool OneIn(uint64_t count) { return count > 0 && Below(count) == 0; }

 private:
  Prng prng_;
};

}  // namespace forebay::simulation
