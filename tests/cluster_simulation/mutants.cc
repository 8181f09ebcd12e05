#include "tests/cluster_simulation/mutants.h"

namespace forebay::cluster_simulation {

const std::vector<Mutant>& Mutants() {
  static const auto* const kMutants = new std::vector<Mutant>{
      {"epoch", [](HistoryOptions* o) { o->mutations.ignore_epochs = true; }, {"1 ", "2 "}},
      {"shrink-first", [](HistoryOptions* o) { o->mutations.commit_before_shrink = true; }, {"1 "}},
      {"both-sets", [](HistoryOptions* o) { o->mutations.commit_on_new_set_alone = true; }, {"1 "}},
      {"duplicate", [](HistoryOptions* o) { o->accept_duplicates = true; }, {"acknowledged"}},
      {"in-sync-only",
       [](HistoryOptions* o) { o->mutations.promote_out_of_sync = true; },
       {"1 ", "2 "}},
      {"match-first", [](HistoryOptions* o) { o->mutations.count_unmatched = true; }, {"1 ", "2 "}},
      {"keep-committed", [](HistoryOptions* o) { o->mutations.truncate_committed = true; }, {"1 "}},
      {"new-reign", [](HistoryOptions* o) { o->mutations.resume_reign = true; }, {"2 "}},
      {"cut-log", [](HistoryOptions* o) { o->trust_cut_log = true; }, {"1 ", "2 "}},
      {"equal-state", [](HistoryOptions* o) { o->diverge = true; }, {"7 "}},
      {"join-behind", [](HistoryOptions* o) { o->mutations.join_behind = true; }, {"1 "}},
  };
  return *kMutants;
}

}  // namespace forebay::cluster_simulation
