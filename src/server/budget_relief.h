// Ends a standstill for want of payload memory: looks at the machines, lets node/memory_relief.h
// decide, and does it. On the ticker's thread, and in the loops.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "node/memory_relief.h"
#include "server/services.h"

namespace forebay::server {

class BudgetRelief {
 public:
  explicit BudgetRelief(ServiceContext* context) : context_(context) {}
  void Tick(uint64_t now_ms);

 private:
  void Decide(uint64_t now_ms, const node::ReliefLook& look);
  void DropFirst(std::vector<node::DropTarget> targets, std::vector<SourceId> wanted);

  ServiceContext* const context_;
  node::ReliefClock clock_;        // in the ledger's loop
  std::atomic<bool> busy_{false};  // one look at a time
};

}  // namespace forebay::server
