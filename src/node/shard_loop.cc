#include "node/shard_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codec/archive.h"

namespace forebay::node {
namespace {

constexpr uint64_t kRefreshMs = 250;

// Handing out and renewing does not; everything else may.
bool MayChangeReady(const shard::Command& command) {
  return !std::holds_alternative<shard::Assign>(command) &&
         !std::holds_alternative<shard::OpenSession>(command) &&
         !std::holds_alternative<shard::LedgerAcknowledged>(command);
}

}  // namespace

ShardLoop::ShardLoop(shard::State* state, Log<shard::Command>* log, ShardPort* port,
                     uint64_t now_ms, LogPosition applied)
    : state_(state), port_(port), primary_(*state, now_ms), proposed_(log, applied) {}

void ShardLoop::Acquire(uint64_t now_ms, shard::Tag tag, shard::Assign request, uint32_t wait_ms) {
  primary_.Acquire(now_ms, tag, request, wait_ms, &output_);
  Run(now_ms);
}

void ShardLoop::Propose(uint64_t now_ms, shard::Tag tag, shard::Command command) {
  primary_.Propose(now_ms, tag, std::move(command), &output_);
  Run(now_ms);
}

void ShardLoop::FromLedger(uint64_t now_ms, const codec::NumberedMessage& message) {
  shard::FromLedger command{.number = message.number};
  FOREBAY_CHECK(codec::Decode(message.body, &command.message));
  Propose(now_ms, 0, std::move(command));
}

void ShardLoop::LedgerAcknowledged(uint64_t now_ms, uint64_t number) {
  Propose(now_ms, 0, shard::LedgerAcknowledged{.number = number});
}

void ShardLoop::Tick(uint64_t now_ms) {
  primary_.Tick(now_ms, &output_);
  // Handing out changes what people are told of a step's wait, and nothing that the ledger asks by.
  if (now_ms >= refresh_due_ms_) {
    refresh_due_ms_ = now_ms + kRefreshMs;
    refresh_ = true;
  }
  Run(now_ms);
}

void ShardLoop::Resend() {
  for (const auto& message : state_->to_ledger().Unacknowledged()) port_->SendToLedger(message);
}

void ShardLoop::Run(uint64_t now_ms) {
  bool applied = false;
  while (true) {
    for (auto& [tag, reply] : output_.replies) port_->OnReply(tag, std::move(reply));
    for (auto& [tag, command] : output_.commands) proposed_.Append(tag, std::move(command));
    output_.Clear();
    if (!proposed_.Take(&taken_)) break;
    const shard::Command& command = taken_.second;
    ready_may_have_changed_ |= MayChangeReady(command);
    state_->Apply(command, taken_.first, &effects_);
    primary_.Applied(now_ms, command, effects_, &output_);
    ready_moved_ |= effects_.ready_moved;
    Deliver();
    applied = true;
  }
  if (applied) proposed_.Rest();
  Summarize();
}

void ShardLoop::Deliver() {
  if (!effects_.dead_payloads.empty() || !effects_.dead_contents.empty()) {
    port_->OnDead(effects_.dead_payloads, effects_.dead_contents);
  }
  if (!effects_.cold_payloads.empty()) port_->OnCold(effects_.cold_payloads);
  for (const auto& message : effects_.to_ledger) port_->SendToLedger(message);
  if (effects_.acknowledge_ledger != 0) port_->AcknowledgeLedger(effects_.acknowledge_ledger);
  for (auto& [tag, reply] : effects_.replies) port_->OnReply(tag, std::move(reply));
  effects_.Clear();
}

void ShardLoop::Summarize() {
  if (!ready_may_have_changed_ && !refresh_) return;
  const bool all = std::exchange(refresh_, false);
  ready_may_have_changed_ = false;
  codec::ReadySummary now = primary_.Summary();
  const bool same =
      std::ranges::equal(now.sources, summary_.sources, [all](const auto& a, const auto& b) {
        if (all) return a == b;
        return a.source == b.source && a.ready_groups == b.ready_groups &&
               a.ready_tokens == b.ready_tokens && a.waited_for == b.waited_for;
      });
  // What the ledger asked for it takes off the last summary: once a group went to a step, or came
  // back, the same numbers mean something else.
  if (same && !ready_moved_) return;
  ready_moved_ = false;
  summary_ = std::move(now);
  port_->OnSummary(summary_);
}

}  // namespace forebay::node
