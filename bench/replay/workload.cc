#include "bench/replay/workload.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/hash.h"
#include "base/prng.h"

namespace forebay::bench {
namespace {

// Standard normal, by Box and Muller.
double Normal(Prng& prng) {
  const double radius = std::sqrt(-2 * std::log(1 - prng.Unit()));
  return radius * std::cos(2 * std::numbers::pi * prng.Unit());
}

}  // namespace

uint32_t TokensOf(const Workload& workload, uint64_t attempt_seed, uint64_t steps) {
  Prng prng(HashCombine(workload.seed, attempt_seed));
  const double variance = std::log1p(workload.deviation * workload.deviation);
  const double part =
      std::min(1.0, static_cast<double>(steps) / std::max(workload.growth_steps, 1u));
  const double mean = workload.mean_tokens * std::pow(workload.growth, part);
  const double tokens =
      std::exp(std::log(mean) - variance / 2 + std::sqrt(variance) * Normal(prng));
  return static_cast<uint32_t>(
      std::clamp(tokens, 16.0, static_cast<double>(workload.context_tokens)));
}

double SolvedShare(const Workload& workload, uint64_t task) {
  return std::pow(Prng(HashCombine(workload.seed, Mix64(task))).Unit(), workload.skew);
}

double TrainSeconds(const Workload& workload, uint64_t rollouts, uint64_t tokens) {
  return workload.step_s + workload.rollout_s * static_cast<double>(rollouts) +
         workload.million_tokens_s * static_cast<double>(tokens) * 1e-6;
}

double TokensPerSecond(const Workload& workload, uint64_t attempts) {
  return workload.tokens_per_s / (1 + static_cast<double>(attempts) / workload.half_at);
}

double GenerationSeconds(const Workload& workload, double survival) {
  const double full = workload.engines * workload.slots * TokensPerSecond(workload, workload.slots);
  return workload.rollouts * workload.mean_tokens / (full * survival);
}

double WaitingBound(const Workload& workload, double survival) {
  const double busy =
      TrainSeconds(workload, workload.rollouts,
                   static_cast<uint64_t>(workload.rollouts * workload.mean_tokens)) +
      workload.sync_s;
  const double step = std::max(busy, GenerationSeconds(workload, survival));
  return 1 - busy / step;
}

}  // namespace forebay::bench
