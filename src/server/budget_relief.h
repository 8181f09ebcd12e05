// Ends a standstill for want of payload memory (section 8 of the design).
//
// While pushes wait for memory, a step lacks groups and none is ready, nothing frees memory by
// itself: the waiting pushes would complete groups, and cannot. When that lasts, the pushes of the
// oldest incomplete group that any push waits for are let in from the reserve; when they do not fit
// either, the youngest incomplete group is dropped, counted "budget". ReliefClock and ChooseWaiters
// are pure; BudgetRelief ties them to the engine, on the ticker's thread.
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
  uint64_t waiters = 0;
  bool step_lacks_groups = false;
  uint64_t groups_ready = 0;
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

// A waiting push and the age of its group; nullopt: its group is not incomplete, or not known.
struct WaitingPush {
  storage::WaiterId id = 0;
  std::optional<uint64_t> order;
};

// The waiters of the oldest group, in order of waiting; empty if no waiter belongs to an incomplete
// group.
std::vector<storage::WaiterId> ChooseWaiters(const std::vector<WaitingPush>& waiting);

class BudgetRelief {
 public:
  explicit BudgetRelief(ServiceContext* context) : context_(context) {}
  void Tick(uint64_t now_ms);

 private:
  struct Look;
  void Decide(const Look& look);
  void DropYoungest(uint32_t shard);

  ServiceContext* const context_;
  ReliefClock clock_;              // in the ledger's loop
  std::atomic<bool> busy_{false};  // one look at a time
};

}  // namespace forebay::server
