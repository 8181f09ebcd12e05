// The simulator at the size of a large run: thousands of actors and ranks, many shards, steps of a
// hundred thousand rollouts, some faults, and all invariants.
//
//   simulate-scale [--actors N] [--ranks N] [--shards N] [--rollouts N] [--steps N] [--seed S]
//
// Prints one line of JSON. CPU is the whole simulator's, in which each command is applied twice, by
// the machine and by its twin, and seen by each invariant: more than the control plane takes.
// Memory likewise.
#include <sys/resource.h>

#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "base/check.h"
#include "tests/simulation/simulation.h"

ABSL_FLAG(uint32_t, actors, 10'000, "");
ABSL_FLAG(uint32_t, ranks, 1'000, "data-parallel ranks of the trainer");
ABSL_FLAG(uint32_t, shards, 64, "");
ABSL_FLAG(uint32_t, rollouts, 100'000, "of a step, in groups of 16");
ABSL_FLAG(uint64_t, steps, 100, "");
ABSL_FLAG(uint64_t, seed, 1, "");

namespace forebay::simulation {
namespace {

int Main() {
  const HistoryOptions options = ScaleOptions({.seed = absl::GetFlag(FLAGS_seed),
                                               .actors = absl::GetFlag(FLAGS_actors),
                                               .ranks = absl::GetFlag(FLAGS_ranks),
                                               .shards = absl::GetFlag(FLAGS_shards),
                                               .rollouts_per_step = absl::GetFlag(FLAGS_rollouts),
                                               .steps = absl::GetFlag(FLAGS_steps)});
  const HistoryResult result = RunHistory(options);
  if (result.violation) {
    std::printf("VIOLATION of \"%s\": %s\n", result.violation->invariant.c_str(),
                result.violation->what.c_str());
    return 1;
  }
  rusage usage{};
  FOREBAY_CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  const double cpu_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  const Stats& stats = result.stats;
  const auto steps = static_cast<double>(stats.steps);
  std::printf(
      "{\"actors\": %u, \"ranks\": %u, \"shards\": %u, \"steps\": %lu, \"rollouts\": %lu, "
      "\"assignments\": %lu, \"events\": %lu, \"checks\": %lu, \"scans\": %lu, "
      "\"virtual_s_per_step\": %.1f, \"cpu_s_per_step\": %.2f, \"cpu_us_per_rollout\": %.1f, "
      "\"resident_peak_mb\": %.0f}\n",
      options.actors, options.ranks, options.shards, stats.steps, stats.rollouts, stats.assignments,
      stats.events, stats.checks, stats.scans, static_cast<double>(stats.virtual_ms) / 1e3 / steps,
      cpu_s / steps, cpu_s * 1e6 / static_cast<double>(stats.rollouts),
      static_cast<double>(usage.ru_maxrss) / 1024);
  std::printf("%s\n", stats.Text().c_str());
  return 0;
}

}  // namespace
}  // namespace forebay::simulation

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("a large run in virtual time, under the eyes of all invariants");
  absl::ParseCommandLine(argc, argv);
  return forebay::simulation::Main();
}
