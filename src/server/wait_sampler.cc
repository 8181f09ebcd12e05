#include "server/wait_sampler.h"

#include <memory>
#include <string>

#include "server/admin.h"

namespace forebay::server {
namespace {

// What one look found.
struct Look {
  uint64_t elapsed_ms = 0;
  uint64_t push_waiters = 0;
  uint64_t actor_waiters = 0;
  std::string actor_reason;
  bool moving = false;
  std::string idle_reason;  // if not: why no attempt is ready or under way
};

// The oldest step that is not sealed decides: the later ones wait for it.
void CountTrainer(const Look& look, const ledger::State& state, RunMetrics* metrics) {
  if (state.places().empty()) return;
  const ledger::Step* oldest = nullptr;
  for (const auto* step : state.StepsNewestFirst()) {
    if (step->live() && step->state != ledger::StepState::kSealed) oldest = step;
  }
  metrics->TrainerTime(look.elapsed_ms, oldest != nullptr);
  if (oldest == nullptr) return;
  std::string reason = "generation";
  if (oldest->state == ledger::StepState::kReserved) {
    reason = "advantages";
  } else if (look.push_waiters > 0) {
    reason = "memory";
  } else if (!look.moving && !look.idle_reason.empty()) {
    reason = look.idle_reason;
  }
  metrics->Waited("trainer", reason, look.elapsed_ms);
}

}  // namespace

void WaitSampler::Tick(uint64_t now_ms) {
  auto look = std::make_shared<Look>();
  look->elapsed_ms = last_ms_ == 0 ? 0 : now_ms - last_ms_;
  last_ms_ = now_ms;
  look->push_waiters = context_->payloads->budget().use().waiters;
  ForEachShard(
      context_->engine,
      [look](node::ShardLoop& loop, uint64_t) {
        const size_t waiters = loop.primary().waiters();
        if (waiters > 0) look->actor_reason = loop.primary().IdleReason();
        look->actor_waiters += waiters;
        const char* standstill = loop.primary().StandstillReason();
        look->moving |= standstill[0] == '\0';
        look->idle_reason = standstill;
      },
      [this, look] {
        auto* metrics = context_->metrics;
        if (look->push_waiters > 0) {
          metrics->Waited("push", "memory", look->push_waiters * look->elapsed_ms);
        }
        if (look->actor_waiters > 0) {
          metrics->Waited("actor", look->actor_reason.empty() ? "other" : look->actor_reason,
                          look->actor_waiters * look->elapsed_ms);
        }
        context_->engine->OnLedger([look, metrics](node::LedgerLoop& loop, uint64_t) {
          CountTrainer(*look, loop.state(), metrics);
        });
      });
}

}  // namespace forebay::server
