#include "tests/cluster_simulation/stats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace forebay::cluster_simulation {

const char* Name(Fault fault) {
  static constexpr std::array<const char*, kFaults> kNames = {"messages lost",
                                                              "repeated",
                                                              "late",
                                                              "crashes",
                                                              "power losses",
                                                              "torn tails",
                                                              "rotten tails",
                                                              "disks lost",
                                                              "slow disks",
                                                              "freezes",
                                                              "one-way partitions",
                                                              "nodes cut off",
                                                              "nodes isolated",
                                                              "nodes without the coordinator",
                                                              "coordinator away",
                                                              "swap answers lost",
                                                              "swaps done late",
                                                              "news lost",
                                                              "news late",
                                                              "news repeated",
                                                              "news compacted",
                                                              "switchovers",
                                                              "placements changed",
                                                              "reigns from cut logs",
                                                              "snapshots sent"};
  return kNames[static_cast<size_t>(fault)];
}

void Stats::Add(const Stats& other) {
  histories += other.histories;
  events += other.events;
  virtual_ms += other.virtual_ms;
  failovers += other.failovers;
  acknowledged += other.acknowledged;
  committed += other.committed;
  set_changes += other.set_changes;
  longest_wait_ms = std::max(longest_wait_ms, other.longest_wait_ms);
  for (size_t i = 0; i < kFaults; ++i) faults[i] += other.faults[i];
}

std::string Stats::Text() const {
  std::string text = absl::StrFormat(
      "%d histories, %.1f virtual hours, %d events, %d failovers, %d changes of configurations, %d "
      "entries committed, %d acknowledged operations checked\n  faults:",
      histories, static_cast<double>(virtual_ms) / 3'600'000, events, failovers, set_changes,
      committed, acknowledged);
  for (size_t i = 0; i < kFaults; ++i)
    absl::StrAppend(&text, i == 0 ? " " : ", ", faults[i], " ", Name(static_cast<Fault>(i)));
  return text;
}

}  // namespace forebay::cluster_simulation
