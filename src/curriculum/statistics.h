// Decayed estimates of a source: what its rollouts are like, and which share of them is trained.
//
// Every rollout decays what came before it by 1 - 1/1024, so that an estimate follows a drift
// within about a thousand rollouts. Plain arithmetic in a fixed order: replicas get the same bits.
// Not thread-safe.
#pragma once

#include <cstdint>

namespace forebay::curriculum {

// (1 - 1/1024)^rollouts.
double RolloutDecay(uint64_t rollouts);

class DecayedMean {
 public:
  // `sum` over `rollouts` rollouts; finite, not negative.
  void Add(double sum, uint64_t rollouts);
  bool measured() const { return count_ > 0; }
  // 0 before the first measurement.
  double mean() const { return count_ > 0 ? sum_ / count_ : 0; }
  bool Valid() const;
  template <class A>
  void Fields(A& a) {
    a(sum_, count_);
  }

 private:
  double sum_ = 0;
  double count_ = 0;
};

// The share of rollouts that is neither filtered, failed nor late.
class Survival {
 public:
  static constexpr double kFloor = 0.1;
  // The first measurements are few: they count beside so many rollouts that survived.
  static constexpr double kPrior = 64;

  void Add(uint64_t kept, uint64_t lost);
  // From kFloor to 1.
  double share() const;
  bool Valid() const;
  template <class A>
  void Fields(A& a) {
    a(kept_, lost_);
  }

 private:
  double kept_ = kPrior;
  double lost_ = 0;
};

// What a source's rollouts are like, as far as it was measured.
struct Estimates {
  Survival survival;
  DecayedMean tokens;
  DecayedMean duration_ms;
  bool Valid() const { return survival.Valid() && tokens.Valid() && duration_ms.Valid(); }
  template <class A>
  void Fields(A& a) {
    a(survival, tokens, duration_ms);
  }
};

}  // namespace forebay::curriculum
