#include "server/budget_relief.h"

#include <algorithm>
#include <utility>

#include "server/admin.h"
#include "server/log.h"

namespace forebay::server {

bool ReliefClock::Stuck(uint64_t now_ms, uint64_t after_ms, const ReliefFacts& facts) {
  const bool still = facts.waiters > 0 && facts.step_lacks_groups && facts.groups_ready == 0 &&
                     facts.progress == progress_;
  progress_ = facts.progress;
  if (!still) {
    since_ms_.reset();
    return false;
  }
  if (!since_ms_) since_ms_ = now_ms;
  if (now_ms - *since_ms_ < after_ms) return false;
  since_ms_.reset();
  return true;
}

std::vector<storage::WaiterId> ChooseWaiters(const std::vector<WaitingPush>& waiting) {
  std::optional<uint64_t> oldest;
  for (const auto& push : waiting) {
    if (push.order && (!oldest || *push.order < *oldest)) oldest = push.order;
  }
  std::vector<storage::WaiterId> chosen;
  for (const auto& push : waiting) {
    if (push.order && push.order == oldest) chosen.push_back(push.id);
  }
  return chosen;
}

struct BudgetRelief::Look {
  uint64_t now_ms = 0;
  std::vector<storage::BudgetWaiter> waiters;
  std::vector<WaitingPush> waiting;  // parallel to `waiters`
  ReliefFacts facts;
  uint32_t fullest = 0;  // the shard with the most incomplete groups
  uint64_t most_open = 0;
};

void BudgetRelief::Tick(uint64_t now_ms) {
  auto& budget = context_->payloads->budget();
  const auto use = budget.use();
  if (use.waiters == 0 || busy_.exchange(true)) return;
  auto look = std::make_shared<Look>();
  look->now_ms = now_ms;
  look->waiters = budget.Waiters();
  look->facts.waiters = look->waiters.size();
  for (const auto& waiter : look->waiters) look->waiting.push_back({waiter.id, std::nullopt});
  look->facts.progress = use.used_bytes + use.waiting_bytes;
  ForEachShard(
      context_->engine,
      [look](node::ShardLoop& loop, uint64_t) {
        uint64_t open = 0;
        for (const auto& source : loop.state().Sources()) {
          look->facts.groups_ready += source.groups_ready;
          look->facts.progress += source.counters->accepted + source.counters->groups_dropped;
          open += source.groups_open;
        }
        if (open > look->most_open) {
          look->most_open = open;
          look->fullest = loop.state().shard().value;
        }
        for (size_t i = 0; i < look->waiters.size(); ++i) {
          const AttemptId attempt(look->waiters[i].tag);
          if (attempt.shard() != loop.state().shard()) continue;
          look->waiting[i].order = loop.state().OpenOrderOf(attempt);
        }
      },
      [this, look] {
        context_->engine->OnLedger([this, look](node::LedgerLoop& loop, uint64_t) {
          for (const auto* step : loop.state().StepsNewestFirst()) {
            look->facts.step_lacks_groups |=
                step->state == ledger::StepState::kOpen &&
                (step->GroupsLacking() > 0 || step->TokensLacking() > 0);
          }
          Decide(*look);
          busy_ = false;
        });
      });
}

void BudgetRelief::Decide(const Look& look) {
  const uint64_t after_ms = context_->config->Get().memory_relief_after_ms;
  if (!clock_.Stuck(look.now_ms, after_ms, look.facts)) return;
  auto& budget = context_->payloads->budget();
  uint64_t admitted = 0;
  for (const storage::WaiterId id : ChooseWaiters(look.waiting)) {
    if (!budget.AdmitFromReserve(id)) break;
    ++admitted;
  }
  if (admitted > 0) {
    context_->metrics->relief_admitted += admitted;
    Log(LogLevel::kWarning,
        "payload memory is full: pushes of the oldest group let in from the reserve",
        {{"pushes", admitted}, {"waiting", look.facts.waiters}});
    return;
  }
  DropYoungest(look.fullest);
}

void BudgetRelief::DropYoungest(uint32_t shard) {
  context_->engine->Ask<shard::CountReply>(
      ShardId(static_cast<uint8_t>(shard)), shard::DropForBudget{},
      [this](shard::CountReply&& reply) {
        if (reply.count == 0) {
          Log(LogLevel::kError,
              "payload memory is full, a step lacks groups, and there is nothing to drop: "
              "memory.payload_bytes_max is too small for a step");
          return;
        }
        context_->metrics->relief_dropped += reply.count;
        Log(LogLevel::kWarning, "payload memory is full: the youngest incomplete group was dropped",
            {{"groups", reply.count}});
      });
}

}  // namespace forebay::server
