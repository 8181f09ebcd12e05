// How far one distribution over tokens is from the one that drew them, as sums.
//
// With d = log p_target - log p_sampler of a token that the sampler drew, k1 = -d, k2 = d^2 / 2 and
// k3 = e^d - 1 - d are estimates of KL(sampler || target) whose means over tokens are compared
// (Schulman, "Approximating KL divergence", 2020). k1 and k3 are unbiased, k3 is never negative.
// Plain values; not thread-safe. Sums are doubles: the order of adding changes their last bits.
#pragma once

#include <cstdint>

namespace forebay::drift {

// |d| beyond this counts as this, and as clamped: e^d of one token must not drown all others.
inline constexpr double kClamp = 20;

struct Sums {
  double tokens = 0;  // with a finite d; no whole number once it has faded
  double k1 = 0;      // sums over these tokens, of d within +-kClamp
  double k2 = 0;
  double k3 = 0;
  double non_finite = 0;  // tokens whose d is none, or not finite: in no other field
  double clamped = 0;     // of `tokens`
  float max_abs = 0;      // largest |d|, before it is clamped
  float older_max = 0;    // of the window before: see Table::StepDone

  // One token.
  void Count(double target, double sampler);
  void Add(const Sums& other);
  // Keeps this share of all counts and sums.
  void Fade(double share);
  float MaxAbs() const { return max_abs > older_max ? max_abs : older_max; }
  // Means over tokens; 0 without any.
  double Mean(double sum) const { return tokens > 0 ? sum / tokens : 0; }
  bool empty() const { return tokens == 0 && non_finite == 0; }
  bool operator==(const Sums&) const = default;
  template <class A>
  void Fields(A& a) {
    a(tokens, k1, k2, k3, non_finite, clamped, max_abs, older_max);
  }
};

// The name of the first field that no tokens can give; null if there is none.
const char* WrongField(const Sums& sums);

}  // namespace forebay::drift
