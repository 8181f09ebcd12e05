// The cluster's simulator: histories one after another, until time is up or an invariant is broken.
//
//   simulate-cluster --minutes 5               histories from a random seed, which is printed first
//   simulate-cluster --seed 17 --histories 1   one history again
//   simulate-cluster --mutations               each rule switched off in turn: an invariant must
//   notice
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "tests/cluster_simulation/mutants.h"
#include "tests/cluster_simulation/simulation.h"
#include "tests/simulation/seeds.h"

ABSL_FLAG(double, minutes, 0, "run histories for so long");
ABSL_FLAG(uint64_t, histories, 0, "run so many histories");
ABSL_FLAG(uint64_t, seed, 0, "of the first history, the next ones follow; 0: a random one");
ABSL_FLAG(bool, mutations, false, "switch off each rule in turn, and see that it is noticed");
ABSL_FLAG(std::string, mutation, "", "switch off this rule in all histories");

namespace forebay::cluster_simulation {
namespace {

constexpr uint64_t kMutationHistoriesMax = 3'000;

HistoryOptions OptionsOf(uint64_t seed, const std::string& mutation) {
  HistoryOptions options = DrawHistory(seed);
  for (const Mutant& mutant : Mutants()) {
    if (mutant.name == mutation) mutant.switch_off(&options);
  }
  return options;
}

void Report(const HistoryOptions& options, const HistoryResult& result) {
  std::printf("VIOLATION of \"%s\" in the history of seed %lu at %lu ms: %s\n  %s\n",
              result.violation->invariant.c_str(), options.seed, result.at_ms,
              result.violation->what.c_str(), options.Summary().c_str());
  for (const std::string& fact : RunHistory(options, /*with_facts=*/true).facts)
    std::printf("  %s\n", fact.c_str());
  std::printf("replay: simulate-cluster --seed %lu --histories 1\n", options.seed);
}

int RunHistories(uint64_t first) {
  const auto run = [](uint64_t seed, Stats* stats) {
    const HistoryOptions options = OptionsOf(seed, absl::GetFlag(FLAGS_mutation));
    const HistoryResult result = RunHistory(options);
    stats->Add(result.stats);
    if (result.violation) Report(options, result);
    return !result.violation;
  };
  return simulation::RunSeeds<Stats>(first, absl::GetFlag(FLAGS_histories),
                                     absl::GetFlag(FLAGS_minutes), run);
}

bool Noticed(const Mutant& mutant, uint64_t seed) {
  for (uint64_t i = 0; i < kMutationHistoriesMax; ++i) {
    const HistoryResult result = RunHistory(OptionsOf(seed + i, mutant.name));
    if (!result.violation) continue;
    for (const std::string& invariant : mutant.invariants) {
      if (!absl::StartsWith(result.violation->invariant, invariant)) continue;
      std::printf("without the rule %s: \"%s\" notices after %lu histories: %s\n",
                  mutant.name.c_str(), result.violation->invariant.c_str(), i + 1,
                  result.violation->what.c_str());
      return true;
    }
  }
  std::printf("without the rule %s: nothing notices in %lu histories\n", mutant.name.c_str(),
              kMutationHistoriesMax);
  return false;
}

int RunMutations(uint64_t seed) {
  int passed = 0;
  for (const Mutant& mutant : Mutants()) {
    passed += Noticed(mutant, seed);
    std::fflush(stdout);
  }
  const int failed = static_cast<int>(Mutants().size()) - passed;
  std::printf("%d mutations passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace forebay::cluster_simulation

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("histories of a cluster, with faults, in virtual time");
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = forebay::simulation::FirstSeed(absl::GetFlag(FLAGS_seed));
  return absl::GetFlag(FLAGS_mutations) ? forebay::cluster_simulation::RunMutations(seed)
                                        : forebay::cluster_simulation::RunHistories(seed);
}
