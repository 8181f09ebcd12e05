// The simulator: histories of one node, one after another, until time is up or an invariant is
// broken.
//
//   simulate --minutes 5            histories from a random seed, which is printed first
//   simulate --seed 17 --histories 1   one history again
//   simulate --mutations            each rule switched off in turn: its invariant must notice
#include <cstdio>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "tests/simulation/seeds.h"
#include "tests/simulation/simulation.h"

ABSL_FLAG(double, minutes, 0, "run histories for so long");
ABSL_FLAG(uint64_t, histories, 0, "run so many histories");
ABSL_FLAG(uint64_t, seed, 0, "of the first history, the next ones follow; 0: a random one");
ABSL_FLAG(uint64_t, events, 20'000, "of a history, at least");
ABSL_FLAG(bool, mutations, false,
          "switch off each rule in turn, and see that its invariant notices");
ABSL_FLAG(uint64_t, trace, UINT64_MAX, "print the facts of the first history from this event on");
ABSL_FLAG(std::string, mutation, "", "switch off this rule in all histories");

namespace forebay::simulation {
namespace {

constexpr uint64_t kTracedEvents = 15;
constexpr uint64_t kMutationHistoriesMax = 2'000;

struct Mutant {
  const char* name;
  bool Mutations::*rule;  // null: one of the simulator's own
  const char* invariant;  // that must notice; another one may be faster
  bool HistoryOptions::*own = nullptr;
  void SwitchOff(HistoryOptions* options) const {
    (rule != nullptr ? options->mutations.*rule : options->*own) = true;
  }
};
constexpr Mutant kMutants[] = {
    {"token", &Mutations::accept_old_tokens, "4"},
    {"duplicate", &Mutations::accept_duplicates, "3"},
    {"lag", &Mutations::ignore_lag, "6"},
    {"generation", &Mutations::ignore_generations, "5"},
    {"equal-plan", &Mutations::replan_in_place, "5"},
    {"damage", &Mutations::keep_damaged, "13"},
    {"checksum", &Mutations::trust_reads, "9"},
    {"absent", &Mutations::wait_for_absent, "13"},
    {"give-up", &Mutations::forget_absent, "3"},
    {"release", &Mutations::release_alone, "3"},
    {"sync", nullptr, "2", &HistoryOptions::commit_unsynced},
    {"incarnation", nullptr, "8", &HistoryOptions::one_incarnation},
    {"unlink", nullptr, "10", &HistoryOptions::free_cold},
};

HistoryOptions OptionsOf(uint64_t seed) {
  HistoryOptions options = DrawHistory(seed);
  options.events = absl::GetFlag(FLAGS_events);
  for (const Mutant& mutant : kMutants) {
    if (absl::GetFlag(FLAGS_mutation) == mutant.name) mutant.SwitchOff(&options);
  }
  return options;
}

void Report(const HistoryOptions& options, const HistoryResult& result) {
  std::printf("VIOLATION of \"%s\" in the history of seed %lu at event %lu: %s\n  %s\n",
              result.violation->invariant.c_str(), options.seed, result.event,
              result.violation->what.c_str(), options.Summary().c_str());
  const uint64_t from = result.event > kTracedEvents ? result.event - kTracedEvents : 0;
  const HistoryResult again = RunHistory(options, from);
  for (const std::string& line : again.last_events) std::printf("  %s\n", line.c_str());
  std::printf("replay: simulate --seed %lu --histories 1 --events %lu\n", options.seed,
              options.events);
}

int RunHistories(uint64_t first) {
  const auto run = [](uint64_t seed, Stats* stats) {
    const HistoryOptions options = OptionsOf(seed);
    const HistoryResult result = RunHistory(options, absl::GetFlag(FLAGS_trace));
    for (const std::string& line : result.last_events) std::printf("  %s\n", line.c_str());
    stats->Add(result.stats);
    if (result.violation) Report(options, result);
    return !result.violation;
  };
  return RunSeeds<Stats>(first, absl::GetFlag(FLAGS_histories), absl::GetFlag(FLAGS_minutes), run);
}

bool Noticed(const Mutant& mutant, uint64_t seed) {
  for (uint64_t i = 0; i < kMutationHistoriesMax; ++i) {
    HistoryOptions options = DrawHistory(seed + i);
    mutant.SwitchOff(&options);
    const HistoryResult result = RunHistory(options);
    if (!result.violation || !absl::StartsWith(result.violation->invariant, mutant.invariant))
      continue;
    std::printf("without the %s check: \"%s\" notices after %lu histories, at event %lu: %s\n",
                mutant.name, result.violation->invariant.c_str(), i + 1, result.event,
                result.violation->what.c_str());
    return true;
  }
  std::printf("without the %s check: nothing notices in %lu histories\n", mutant.name,
              kMutationHistoriesMax);
  return false;
}

int RunMutations(uint64_t seed) {
  int passed = 0;
  for (const Mutant& mutant : kMutants) passed += Noticed(mutant, seed);
  const int failed = static_cast<int>(std::size(kMutants)) - passed;
  std::printf("%d mutations passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace forebay::simulation

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("histories of the whole system, with faults, in virtual time");
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = forebay::simulation::FirstSeed(absl::GetFlag(FLAGS_seed));
  return absl::GetFlag(FLAGS_mutations) ? forebay::simulation::RunMutations(seed)
                                        : forebay::simulation::RunHistories(seed);
}
