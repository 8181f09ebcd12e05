#include "node/ledger_loop.h"

#include "base/check.h"
#include "codec/archive.h"

namespace forebay::node {

LedgerLoop::LedgerLoop(ledger::State* state, Log<ledger::Command>* log, LedgerPort* port,
                       LogPosition applied)
    : state_(state), port_(port), primary_(*state), proposed_(log, applied) {}

void LedgerLoop::Propose(uint64_t now_ms, ledger::Tag tag, ledger::Command command) {
  primary_.Propose(now_ms, tag, std::move(command), &output_);
  Run(now_ms);
}

void LedgerLoop::FromShard(uint64_t now_ms, ShardId shard, const codec::NumberedMessage& message) {
  ledger::FromShard command{.shard = shard, .number = message.number};
  FOREBAY_CHECK(codec::Decode(message.body, &command.message));
  Propose(now_ms, 0, std::move(command));
}

void LedgerLoop::ShardAcknowledged(uint64_t now_ms, ShardId shard, uint64_t number) {
  Propose(now_ms, 0, ledger::ShardAcknowledged{.shard = shard, .number = number});
}

void LedgerLoop::OnSummary(uint64_t now_ms, codec::ReadySummary summary) {
  primary_.SetSummary(now_ms, std::move(summary), &output_);
  Run(now_ms);
}

void LedgerLoop::Tick(uint64_t now_ms) {
  primary_.Tick(now_ms, &output_);
  Run(now_ms);
}

void LedgerLoop::Resend() {
  for (uint32_t i = 0; i < state_->options().shards; ++i) {
    const ShardId shard(static_cast<uint8_t>(i));
    for (const auto& message : state_->outbox(shard).Unacknowledged()) {
      port_->SendToShard(shard, message);
    }
  }
}

void LedgerLoop::Run(uint64_t now_ms) {
  bool applied = false;
  while (true) {
    for (auto& [tag, reply] : output_.replies) port_->OnReply(tag, std::move(reply));
    for (auto& [tag, command] : output_.commands) proposed_.Append(tag, std::move(command));
    output_.Clear();
    if (!proposed_.Take(&taken_)) break;
    const ledger::Command& command = taken_.second;
    state_->Apply(command, taken_.first, &effects_);
    primary_.Applied(now_ms, command, effects_, &output_);
    Deliver();
    applied = true;
  }
  if (applied) proposed_.Rest();
}

void LedgerLoop::Deliver() {
  if (!effects_.dead_payloads.empty()) port_->OnDead(effects_.dead_payloads);
  for (const auto& [shard, message] : effects_.to_shards) port_->SendToShard(shard, message);
  for (const auto& [shard, number] : effects_.acknowledge_shards) {
    port_->AcknowledgeShard(shard, number);
  }
  for (const auto& announcement : effects_.announcements) port_->OnAnnouncement(announcement);
  for (auto& [tag, reply] : effects_.replies) port_->OnReply(tag, std::move(reply));
  for (const StepId step : effects_.steps_changed) port_->OnStepChanged(step);
  effects_.Clear();
}

}  // namespace forebay::node
