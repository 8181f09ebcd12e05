// How a standstill for want of payload memory ends (section 8 of the design): the decision, for the
// daemon (server/budget_relief.h) and for the simulator, which carry it out.
//
// While pushes or hand-outs wait for memory, a step lacks groups and none that it could take is
// ready, nothing frees memory by itself: the waiting pushes would complete groups, and cannot. Nor
// do those groups of the step that are open, when they are fewer than it lacks. When that lasts,
// the pushes of the oldest incomplete group that the step could take are let in from the reserve.
// When they do not fit either, or there are none, groups are dropped, counted "budget": first those
// of sources that the step does not take (the youngest incomplete one, then ready ones), then the
// youngest incomplete group of all.
//
// Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "ledger/primary.h"
#include "shard/primary.h"

namespace forebay::node {

// A waiting push and the age of its group, if that is incomplete and the waiting step could take
// it.
struct WaitingPush {
  uint64_t id = 0;         // the caller's
  AttemptId attempt = {};  // the first of what is pushed; none: nobody knows its group
  std::optional<uint64_t> order = {};
  bool settled = false;  // its group is complete or gone: the push is refused, its bytes go at once
};

// What a shard holds that may be dropped.
struct FilledShard {
  ShardId shard;
  uint64_t open = 0;    // incomplete groups
  uint64_t others = 0;  // groups, ready ones too, of sources that the waiting step does not take
};

// All that is decided by. The caller fills in what waits and what is used; then the ledger is
// looked at, then every shard.
struct ReliefLook {
  std::vector<WaitingPush> waiting;  // oldest first
  uint64_t used_bytes = 0;           // of payload memory, without those that wait

  void AtLedger(const ledger::State& state, const ledger::Primary& primary);
  void AtShard(const shard::State& state, const shard::Primary& primary);

  uint64_t moved = 0;  // rollouts accepted and groups dropped, ever
  // Of the oldest step that lacks groups.
  bool step_lacks_groups = false;
  bool too_large = false;
  uint64_t lacking = 0;          // groups that it waits for
  std::vector<SourceId> wanted;  // the train sources that it takes from, by id
  uint64_t starved = 0;          // shards whose actors wait for memory
  uint64_t in_flight = 0;        // attempts of the wanted sources
  uint64_t open = 0;             // incomplete groups of theirs
  uint64_t ready = 0;            // groups that this step could take
  std::vector<FilledShard> shards;
};

struct ReliefFacts {
  uint64_t waiters = 0;            // pushes, and shards with actors that wait for memory
  bool step_lacks_groups = false;  // the oldest open one
  uint64_t groups_ready = 0;       // that this step could take
  // Changes whenever something moves: pushes let in, bytes freed, rollouts accepted or dropped. Not
  // when pushes come to wait or give up: while actors try again and again, that would never end.
  uint64_t progress = 0;
};
ReliefFacts FactsOf(const ReliefLook& look);

class ReliefClock {
 public:
  // True when the standstill has lasted for `after_ms`; then it counts anew.
  bool Stuck(uint64_t now_ms, uint64_t after_ms, const ReliefFacts& facts);

 private:
  std::optional<uint64_t> since_ms_;
  uint64_t progress_ = 0;
};

struct DropTarget {
  ShardId shard;
  bool only_others = false;  // spares what the step could take
  bool operator==(const DropTarget&) const = default;
};

// What to do, each in its order. The pushes are let in from the reserve until one does not fit.
// Then, if DropsAfter says so, a group is dropped where there is one with bytes.
struct ReliefPlan {
  std::vector<uint64_t> admit;
  size_t completing = 0;  // so many of them, the first, are of the oldest group
  std::vector<DropTarget> drops;

  // When the first `let_in` have fitted. Pushes that are refused at once end no standstill: they go
  // through the reserve a few at a time, and there may be thousands.
  bool DropsAfter(size_t let_in) const {
    return let_in == 0 || (completing == 0 && let_in < admit.size());
  }
};
ReliefPlan PlanRelief(const ReliefLook& look);

// The waiters of the oldest group, then those that are settled, each in order of waiting.
std::vector<uint64_t> ChooseWaiters(const std::vector<WaitingPush>& waiting,
                                    size_t* completing = nullptr);

// Where to drop a group, in order of trying: until one is dropped. `own_too`: also from what the
// step could take, which helps when pushes wait, not when the actors do.
std::vector<DropTarget> ChooseDrops(std::vector<FilledShard> shards, bool own_too);

}  // namespace forebay::node
