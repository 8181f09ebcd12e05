// What histories went through, for the report.
//
// Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace forebay::cluster_simulation {

enum class Fault : uint8_t {
  kLost,  // a message
  kRepeated,
  kLate,
  kCrash,      // of a process: what was not synced may be there or not, or torn
  kPowerLoss,  // of all nodes at once
  kTornTail,
  kRottenTail,  // synced entries are gone with the tail that was cut
  kDiskLost,
  kSlowDisk,
  kFreeze,
  kOneWay,         // a partition in one direction
  kCutOff,         // from the other nodes, but not from the coordinator
  kIsolated,       // from everybody
  kNoCoordinator,  // one node
  kCoordinatorAway,
  kSwapAnswerLost,
  kSwapLate,  // done after its asker has counted it as unknown
  kWatchLost,
  kWatchLate,
  kWatchRepeated,
  kWatchCompacted,
  kSwitchover,
  kPlacement,
  kLedFromCutLog,
  kSnapshotSent,
};
inline constexpr size_t kFaults = static_cast<size_t>(Fault::kSnapshotSent) + 1;
const char* Name(Fault fault);

struct Stats {
  uint64_t histories = 0;
  uint64_t events = 0;
  uint64_t virtual_ms = 0;
  uint64_t failovers = 0;     // reigns after the first one of a machine
  uint64_t acknowledged = 0;  // operations, each checked
  uint64_t committed = 0;     // entries
  uint64_t set_changes = 0;
  uint64_t longest_wait_ms = 0;  // of a client for an answer
  std::array<uint64_t, kFaults> faults{};

  void Count(Fault fault) { ++faults[static_cast<size_t>(fault)]; }
  void Add(const Stats& other);
  std::string Text() const;
};

}  // namespace forebay::cluster_simulation
