// Each rule of the protocol is switched off in turn, and an invariant that is named for it notices.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/cluster_simulation/mutants.h"
#include "tests/cluster_simulation/simulation.h"

namespace forebay::cluster_simulation {
namespace {

constexpr uint64_t kHistoriesMax = 3'000;

class Mutations : public testing::TestWithParam<Mutant> {};

bool Notices(const Mutant& mutant, const Violation& violation) {
  for (const std::string& invariant : mutant.invariants) {
    if (absl::StartsWith(violation.invariant, invariant)) return true;
  }
  return false;
}

TEST_P(Mutations, IsNoticed) {
  for (uint64_t seed = 1; seed <= kHistoriesMax; ++seed) {
    HistoryOptions options = DrawHistory(seed);
    GetParam().switch_off(&options);
    const HistoryResult result = RunHistory(options);
    if (!result.violation || !Notices(GetParam(), *result.violation)) continue;
    // The same history with the rule on breaks nothing.
    const HistoryResult with_rule = RunHistory(DrawHistory(seed));
    EXPECT_FALSE(with_rule.violation) << with_rule.violation->what;
    return;
  }
  FAIL() << "nothing notices in " << kHistoriesMax << " histories";
}

std::string NameOf(const testing::TestParamInfo<Mutant>& info) {
  std::string name;
  for (const char c : info.param.name) {
    if (c != '-') name += c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Rules, Mutations, testing::ValuesIn(Mutants()), NameOf);

}  // namespace
}  // namespace forebay::cluster_simulation
