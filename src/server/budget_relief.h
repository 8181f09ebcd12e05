// Ends a standstill for want of payload memory (section 8 of the design).
//
// While pushes or hand-outs wait for memory, a step lacks groups and none that it could take is
// ready, nothing frees memory by itself: the waiting pushes would complete groups, and cannot. Nor
// do those groups of the step that are open, when they are fewer than it lacks. When that lasts,
// the pushes of the oldest incomplete group that the step could take are let in from the reserve.
// When they do not fit either, groups are dropped, counted "budget": first those of sources that
// the step does not take (the youngest incomplete one, then ready ones), then the youngest
// incomplete group of all. ReliefClock, ChooseWaiters and ChooseDrops are pure; BudgetRelief ties
// them to the engine, on the ticker's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/services.h"
#include "storage/payload_budget.h"

namespace forebay::server {

struct ReliefFacts {
  uint64_t waiters = 0;            // pushes, and shards with actors that wait for memory
  bool step_lacks_groups = false;  // the oldest open one
  uint64_t groups_ready = 0;       // that this step could take
  // Changes whenever something moves: pushes let in, rollouts accepted or dropped.
  uint64_t progress = 0;
};

class ReliefClock {
 public:
  // True when the standstill has lasted for `after_ms`; then it counts anew.
  bool Stuck(uint64_t now_ms, uint64_t after_ms, const ReliefFacts& facts);

 private:
  std::optional<uint64_t> since_ms_;
  uint64_t progress_ = 0;
};

// A waiting push and the age of its group, if that is incomplete and the waiting step could take
// it.
struct WaitingPush {
  storage::WaiterId id = 0;
  std::optional<uint64_t> order;
  bool settled = false;  // its group is complete or gone: the push is refused, its bytes go at once
};

// The waiters of the oldest group, then those that are settled, each in order of waiting.
std::vector<storage::WaiterId> ChooseWaiters(const std::vector<WaitingPush>& waiting);

// What a shard holds that may be dropped.
struct FilledShard {
  ShardId shard;
  uint64_t open = 0;    // incomplete groups
  uint64_t others = 0;  // groups, ready ones too, of sources that the waiting step does not take
};

struct DropTarget {
  ShardId shard;
  bool only_others = false;
  bool operator==(const DropTarget&) const = default;
};

// Where to drop a group, in order of trying: until one is dropped. `own_too`: also from what the
// step could take, which helps when pushes wait, not when the actors do.
std::vector<DropTarget> ChooseDrops(std::vector<FilledShard> shards, bool own_too);

class BudgetRelief {
 public:
  explicit BudgetRelief(ServiceContext* context) : context_(context) {}
  void Tick(uint64_t now_ms);

 private:
  struct Look;
  static void LookAtShard(node::ShardLoop& loop, Look* look);
  static uint64_t StarvedShards(const Look& look);
  void Decide(const Look& look);
  void DropFirst(std::vector<DropTarget> targets, std::vector<SourceId> wanted);

  ServiceContext* const context_;
  ReliefClock clock_;              // in the ledger's loop
  std::atomic<bool> busy_{false};  // one look at a time
};

}  // namespace forebay::server
