#include "tests/simulation/stats.h"

#include "absl/strings/str_cat.h"

namespace forebay::simulation {

const char* Name(Fault fault) {
  static constexpr const char* kNames[kFaults] = {"messages lost",
                                                  "messages repeated",
                                                  "peer messages lost",
                                                  "peer messages repeated",
                                                  "restarts",
                                                  "actors crashed",
                                                  "actors left",
                                                  "stragglers",
                                                  "tool waits",
                                                  "leases forgotten",
                                                  "weights late",
                                                  "bad inputs",
                                                  "pushes too late",
                                                  "pushes repeated",
                                                  "rewards lost",
                                                  "jobs crashed",
                                                  "ranks crashed",
                                                  "calls of zombies",
                                                  "replans",
                                                  "aborts",
                                                  "sources changed",
                                                  "quarantines",
                                                  "pushes that waited",
                                                  "times pushes were let in from the reserve",
                                                  "groups dropped for budget",
                                                  "payloads damaged",
                                                  "restarts with damage",
                                                  "drops by the operator",
                                                  "rewinds",
                                                  "replays",
                                                  "rewinds repeated",
                                                  "troubles of disks",
                                                  "troubles of the store",
                                                  "bits of payloads flipped in reads",
                                                  "bits of payloads flipped",
                                                  "payloads lost for that",
                                                  "requests at a full log",
                                                  "logs failed",
                                                  "snapshots",
                                                  "snapshots failed",
                                                  "bits flipped",
                                                  "starts refused for damage",
                                                  "steps that lost their payloads",
                                                  "rollouts kept for people",
                                                  "shards away",
                                                  "shards away for good",
                                                  "shards taken for absent",
                                                  "payloads of shards away damaged"};
  return kNames[static_cast<size_t>(fault)];
}

void Stats::Add(const Stats& other) {
  histories += other.histories;
  events += other.events;
  virtual_ms += other.virtual_ms;
  checks += other.checks;
  scans += other.scans;
  assignments += other.assignments;
  rollouts += other.rollouts;
  steps += other.steps;
  evals += other.evals;
  unlinked += other.unlinked;
  for (size_t i = 0; i < kFaults; ++i) faults[i] += other.faults[i];
}

std::string Stats::Text() const {
  std::string text = absl::StrCat(histories, " histories, ", events, " events, ", virtual_ms / 1000,
                                  " s of virtual time, ", checks, " operations checked, ", scans,
                                  " full scans, ", assignments, " assignments, ", rollouts,
                                  " rollouts accepted, ", steps, " steps committed, ", evals,
                                  " evaluations done, ", unlinked, " segments unlinked\nfaults:");
  for (size_t i = 0; i < kFaults; ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", faults[i], " ", Name(static_cast<Fault>(i)));
  }
  return text;
}

}  // namespace forebay::simulation
