#include "curriculum/statistics.h"

#include <cmath>

namespace forebay::curriculum {

double RolloutDecay(uint64_t rollouts) {
  double result = 1;
  // By squaring, in a fixed order: std::pow differs between libraries.
  for (double power = 1 - 1.0 / 1024; rollouts > 0; rollouts /= 2, power *= power) {
    if (rollouts % 2 == 1) result *= power;
  }
  return result;
}

void DecayedMean::Add(double sum, uint64_t rollouts) {
  const double decay = RolloutDecay(rollouts);
  sum_ = sum_ * decay + sum;
  count_ = count_ * decay + static_cast<double>(rollouts);
}

bool DecayedMean::Valid() const {
  return std::isfinite(sum_) && std::isfinite(count_) && sum_ >= 0 && count_ >= 0;
}

void Survival::Add(uint64_t kept, uint64_t lost) {
  const double decay = RolloutDecay(kept + lost);
  kept_ = kept_ * decay + static_cast<double>(kept);
  lost_ = lost_ * decay + static_cast<double>(lost);
}

double Survival::share() const {
  const double share = kept_ / (kept_ + lost_);
  return share > kFloor ? share : kFloor;
}

bool Survival::Valid() const {
  return std::isfinite(kept_) && std::isfinite(lost_) && kept_ >= 0 && lost_ >= 0 &&
         kept_ + lost_ > 0;
}

}  // namespace forebay::curriculum
