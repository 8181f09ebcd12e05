#include "server/budget_relief.h"

#include <memory>
#include <utility>

#include "server/admin.h"
#include "server/log.h"

namespace forebay::server {

void BudgetRelief::Tick(uint64_t now_ms) {
  auto& budget = context_->payloads->budget();
  const auto use = budget.use();
  // With half of the memory free nobody waits for memory; a cache of the disk is always full.
  const bool cache = context_->storage->segments() != nullptr;
  if (use.waiters == 0 && (cache || use.used_bytes < use.bytes_max / 2)) return;
  if (busy_.exchange(true)) return;
  auto look = std::make_shared<node::ReliefLook>();
  for (const storage::BudgetWaiter& waiter : budget.Waiters()) {
    look->waiting.push_back({.id = waiter.id, .attempt = AttemptId(waiter.tag)});
  }
  look->used_bytes = use.used_bytes;
  context_->engine->OnLedger([this, look, now_ms](node::LedgerLoop& loop, uint64_t) {
    look->AtLedger(loop.state(), loop.primary());
    ForEachShard(
        context_->engine,
        [look](node::ShardLoop& shard, uint64_t) { look->AtShard(shard.state(), shard.primary()); },
        [this, look, now_ms] {
          context_->engine->OnLedger([this, look, now_ms](node::LedgerLoop&, uint64_t) {
            Decide(now_ms, *look);
            busy_ = false;
          });
        });
  });
}

void BudgetRelief::Decide(uint64_t now_ms, const node::ReliefLook& look) {
  const uint64_t after_ms = context_->config->Get().memory_relief_after_ms;
  const node::ReliefFacts facts = node::FactsOf(look);
  if (!clock_.Stuck(now_ms, after_ms, facts)) return;
  node::ReliefPlan plan = node::PlanRelief(look);
  auto& budget = context_->payloads->budget();
  uint64_t admitted = 0;
  for (const storage::WaiterId id : plan.admit) {
    if (!budget.AdmitFromReserve(id)) break;
    ++admitted;
  }
  if (admitted > 0) {
    context_->metrics->relief_admitted += admitted;
    Log(LogLevel::kWarning,
        "payload memory is full: pushes of the oldest group, or of groups that are over, let in "
        "from "
        "the reserve",
        {{"pushes", admitted}, {"waiting", facts.waiters}});
  }
  if (!plan.DropsAfter(admitted)) return;
  // Bytes that are on disk give way by themselves: the store is slow, or stands still, and dropping
  // what was acknowledged would free nothing.
  if (context_->storage->segments() != nullptr) return;
  DropFirst(std::move(plan.drops), look.wanted);
}

void BudgetRelief::DropFirst(std::vector<node::DropTarget> targets, std::vector<SourceId> wanted) {
  if (targets.empty()) {
    Log(LogLevel::kError,
        "payload memory is full, a step lacks groups, and there is nothing to drop: "
        "memory.payload_bytes_max is too small for a step");
    return;
  }
  const node::DropTarget target = targets.front();
  targets.erase(targets.begin());
  shard::DropForBudget command;
  if (target.only_others) command.spared = wanted;
  context_->engine->Ask<shard::CountReply>(
      target.shard, std::move(command),
      [this, target, targets = std::move(targets),
       wanted = std::move(wanted)](shard::CountReply&& reply) mutable {
        // It has groups, but none that holds bytes.
        if (reply.count == 0) return DropFirst(std::move(targets), std::move(wanted));
        context_->metrics->relief_dropped += reply.count;
        Log(LogLevel::kWarning,
            target.only_others
                ? "payload memory is full: a group of a source that the waiting step does not "
                  "take was dropped"
                : "payload memory is full: the youngest incomplete group was dropped",
            {{"groups", reply.count}});
      });
}

}  // namespace forebay::server
