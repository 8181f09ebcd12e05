#include "drift/sums.h"

#include <algorithm>
#include <cmath>

#include "drift/limits.h"

namespace forebay::drift {
namespace {

// Sums are rounded; a bound that each token keeps, their sum may miss by so much.
constexpr double kSlack = 1 + 1e-6;

bool Within(double value, double low, double high) {
  return value >= low && value <= high;  // false for NaN
}

}  // namespace

void Sums::Count(double target, double sampler) {
  const double d = target - sampler;
  if (!std::isfinite(d)) {
    ++non_finite;
    return;
  }
  const double kept = std::clamp(d, -kClamp, kClamp);
  ++tokens;
  if (kept != d) ++clamped;
  k1 -= kept;
  k2 += kept * kept / 2;
  k3 += std::max(0.0, std::expm1(kept) - kept);
  constexpr double kMost = 3e38;  // what a float holds
  max_abs = std::max(max_abs, static_cast<float>(std::min(std::abs(d), kMost)));
}

void Sums::Add(const Sums& other) {
  tokens += other.tokens;
  k1 += other.k1;
  k2 += other.k2;
  k3 += other.k3;
  non_finite += other.non_finite;
  clamped += other.clamped;
  max_abs = std::max(max_abs, other.max_abs);
  older_max = std::max(older_max, other.older_max);
}

void Sums::Fade(double share) {
  for (double* sum : {&tokens, &k1, &k2, &k3, &non_finite, &clamped}) *sum *= share;
}

const char* WrongField(const Sums& sums) {
  if (!Within(sums.tokens, 0, kTokensMax)) return "tokens";
  if (!Within(sums.k1, -sums.tokens * kClamp * kSlack, sums.tokens * kClamp * kSlack)) return "k1";
  if (!Within(sums.k2, 0, sums.tokens * kClamp * kClamp / 2 * kSlack)) return "k2";
  static const double kMostK3 = (std::expm1(kClamp) - kClamp) * kSlack;
  if (!Within(sums.k3, 0, sums.tokens * kMostK3)) return "k3";
  if (!Within(sums.non_finite, 0, kTokensMax)) return "non_finite";
  if (!Within(sums.clamped, 0, sums.tokens)) return "clamped";
  if (!(sums.max_abs >= 0 && std::isfinite(sums.max_abs))) return "max_abs";
  if (!(sums.older_max >= 0 && std::isfinite(sums.older_max))) return "max_abs";
  return nullptr;
}

}  // namespace forebay::drift
