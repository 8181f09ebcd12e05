// What a history went through, for the report: events, faults by kind, operations that were
// checked.
//
// Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace forebay::simulation {

enum class Fault : uint8_t {
  kLost,  // a message between a client and the node
  kRepeated,
  kPeerLost,  // a message between ledger and shard
  kPeerRepeated,
  kRestart,  // of a shard or the ledger, from its snapshot
  kActorCrash,
  kActorLeft,
  kStraggler,
  kToolWait,
  kForgotLease,  // an actor that does not renew
  kLateWeights,
  kBadInput,
  kLatePush,  // refused: the group is complete, or the lease is lost
  kRepeatedPush,
  kLostReward,
  kJobCrash,
  kRankCrash,
  kZombieCall,
  kReplan,
  kAbort,
  kSourceChange,
  kQuarantine,
  kMemoryWait,      // a push that waits for payload memory
  kReliefAdmitted,  // pushes that completed a group from the reserve of memory
  kBudgetDrop,
  kDamage,  // a payload that cannot be read any more
  kDamageAtRestart,
  kOperatorDrop,
  kRewind,  // fresh
  kReplay,
  kRewindRepeated,  // a request that was answered before
  kDiskTrouble,     // of a log
  kStoreTrouble,    // of the disk of payloads
  kReadFlip,        // a bit of what a read of it brings
  kStoreFlip,       // a bit of what it keeps
  kStoreLost,       // a payload that it cannot read any more for that
  kLogFull,         // a request that waits for a log, or is refused
  kLogFailed,       // so that its machine ends
  kSnapshot,
  kSnapshotFailed,
  kFlip,      // a bit of what is stored
  kRefused,   // the history ends, as a start would serve damage
  kReleased,  // a step that lost its payloads before a checkpoint covered it
  kKept,      // a rollout of a committed step that is there for people at the end
  kAway,      // a shard that does not answer for a while ...
  kAwayForGood,
  kTakenForAbsent,  // ... so long that steps were planned without it
  kAwayLost,        // a payload of such a shard's, in a step, that cannot be read any more
};
inline constexpr size_t kFaults = static_cast<size_t>(Fault::kAwayLost) + 1;
const char* Name(Fault fault);

struct Stats {
  uint64_t histories = 0;
  uint64_t events = 0;
  uint64_t virtual_ms = 0;
  uint64_t checks = 0;  // operations that invariants looked at
  uint64_t scans = 0;   // of the whole state
  uint64_t assignments = 0;
  uint64_t rollouts = 0;  // accepted
  uint64_t steps = 0;     // committed
  uint64_t evals = 0;     // done
  uint64_t unlinked = 0;  // segments of the store
  std::array<uint64_t, kFaults> faults{};

  void Count(Fault fault) { ++faults[static_cast<size_t>(fault)]; }
  void Add(const Stats& other);
  std::string Text() const;
};

}  // namespace forebay::simulation
