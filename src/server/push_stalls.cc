#include "server/push_stalls.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "server/admin.h"
#include "server/log.h"

namespace forebay::server {

void PushStalls::Tick(uint64_t /*now_ms*/) {
  if (busy_) return;
  auto stalled = watch_->Find(context_->config->Get().limits_push_stall_ms);
  if (stalled.empty()) return;
  if (context_->payloads->budget().use().waiters > 0) {
    for (const auto& push : stalled) End(push, "while others wait for memory", true);
    return;
  }
  busy_ = true;
  auto over = std::make_shared<std::vector<PushWatch::Stalled>>();
  ForEachShard(
      context_->engine,
      [stalled = std::move(stalled), over](node::ShardLoop& loop, uint64_t) {
        for (const auto& push : stalled) {
          if (push.lease.attempt.value == 0) continue;  // of a pushed group, without leases
          if (push.lease.attempt.shard() != loop.state().shard()) continue;
          if (!loop.state().LeaseHeld(push.lease)) over->push_back(push);
        }
      },
      [this, over] {
        for (const auto& push : *over) End(push, "and its lease is over", false);
        busy_ = false;
      });
}

void PushStalls::End(const PushWatch::Stalled& push, const char* why, bool for_memory) {
  const bool ended = watch_->EndStalled(
      push, absl::StrCat("none came for ", push.idle_ms, " ms, ", why, " (limits.push_stall_ms)"));
  if (!ended) return;
  ++(for_memory ? context_->metrics->pushes_stalled_memory
                : context_->metrics->pushes_stalled_lease);
  Log(LogLevel::kWarning, "push: stalled half-way and was ended",
      {{"attempt", push.lease.attempt.value}, {"idle_ms", push.idle_ms}, {"why", why}});
}

}  // namespace forebay::server
