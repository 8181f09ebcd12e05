// Planning a step: log-normal lengths (mean 4k tokens, at most 64k), packed for many ranks.
//
// The arguments are rollouts, ranks, mini-batches and the token budget; the counters are those of
// PlanQuality.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/prng.h"
#include "batch/pack.h"

namespace forebay::batch {
namespace {

constexpr double kMeanTokens = 4096;
constexpr double kSigma = 1;
constexpr double kMostTokens = 65536;
constexpr uint32_t kGroupSize = 16;

std::vector<SequenceSize> LogNormalRollouts(uint32_t count) {
  Prng prng(7);
  std::vector<SequenceSize> sequences(count);
  for (uint32_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Unit()));
    const double normal = radius * std::cos(2 * std::numbers::pi * prng.Unit());
    const double tokens = kMeanTokens * std::exp(kSigma * normal - kSigma * kSigma / 2);
    sequences[i] = {static_cast<uint32_t>(std::clamp(tokens, 16.0, kMostTokens)), i,
                    i / kGroupSize};
  }
  return sequences;
}

void PlanStep(benchmark::State& state) {
  const auto sequences = LogNormalRollouts(static_cast<uint32_t>(state.range(0)));
  PackSpec spec;
  spec.dp = static_cast<uint32_t>(state.range(1));
  spec.mini_batches = static_cast<uint32_t>(state.range(2));
  spec.token_budget = static_cast<uint64_t>(state.range(3));
  for (auto _ : state) {
    auto plan = Pack(sequences, spec);
    benchmark::DoNotOptimize(plan);
  }
  const Plan plan = *Pack(sequences, spec);
  const PlanQuality quality = Measure(sequences, spec, plan);
  state.counters["imbalance"] = quality.imbalance;
  state.counters["mini_imbalance"] = quality.mini_batch_imbalance;
  state.counters["fill"] = quality.fill;
  state.counters["token_fill"] = quality.token_fill;
  state.counters["per_rank"] = plan.mini_batches[0].micro_batches_per_rank;
  state.counters["fillers"] = static_cast<double>(plan.filler_micro_batches);
}

BENCHMARK(PlanStep)
    ->ArgNames({"rollouts", "ranks", "mini", "budget"})
    ->Args({100'000, 1'024, 1, 65'536})
    ->Args({100'000, 1'024, 1, 67'584})
    ->Args({100'000, 1'024, 1, 131'072})
    ->Args({100'000, 1'024, 4, 65'536})
    ->Args({100'000, 8, 1, 65'536})
    ->Args({10'000, 1'024, 1, 65'536})
    ->Args({1'024, 64, 4, 65'536})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace forebay::batch
