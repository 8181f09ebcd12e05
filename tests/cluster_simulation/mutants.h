// The rules that are switched off one after another, and the invariants that must notice.
//
// Plain values.
#pragma once

#include <string>
#include <vector>

#include "tests/cluster_simulation/options.h"

namespace forebay::cluster_simulation {

struct Mutant {
  std::string name;
  void (*switch_off)(HistoryOptions*);
  // Beginnings of the names of those that may notice first; others do not count.
  std::vector<std::string> invariants;
};

const std::vector<Mutant>& Mutants();

}  // namespace forebay::cluster_simulation
