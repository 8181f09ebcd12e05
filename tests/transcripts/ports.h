// The machines of a script, and what comes out of them while a command runs.
//
// Only for this folder. Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "tests/transcripts/script.h"

namespace forebay::transcripts {

struct Script::Ports final : node::ShardPort, node::LedgerPort {
  // The machines speak of shards alone; a script has one.
  static constexpr ShardId kShard{0};

  explicit Ports(Script* s)
      : script(s),
        shard(shard::Options{.shard = kShard, .run_seed = 1}),
        ledger(ledger::Options{.run_seed = 1, .shards = 1, .open_steps_max = 2}),
        shard_loop(&shard, &shard_log, this, 0),
        ledger_loop(&ledger, &ledger_log, this) {}

  void OnReply(shard::Tag tag, shard::Reply&& reply) override {
    replies.emplace_back(tag, std::move(reply));
  }
  void OnDead(const std::vector<PayloadId>& payloads, const std::vector<PayloadId>&) override;
  void OnCold(const std::vector<PayloadId>& payloads) override;
  void SendToLedger(const codec::NumberedMessage& message) override;
  void AcknowledgeLedger(uint64_t number) override {
    mail.push_back(
        [this, number] { ledger_loop.ShardAcknowledged(script->now_ms_, kShard, number); });
  }
  void OnSummary(const codec::ReadySummary& summary) override {
    mail.push_back([this, summary] { ledger_loop.OnSummary(script->now_ms_, summary); });
  }

  void OnReply(ledger::Tag, ledger::Reply&& reply) override {
    ledger_replies.push_back(std::move(reply));
  }
  void OnDead(const std::vector<PayloadId>& payloads) override { OnDead(payloads, {}); }
  void SendToShard(ShardId shard, const codec::NumberedMessage& message) override;
  void AcknowledgeShard(ShardId, uint64_t number) override {
    mail.push_back([this, number] { shard_loop.LedgerAcknowledged(script->now_ms_, number); });
  }
  void OnStepChanged(StepId step) override { changed.push_back(step); }
  void OnAnnouncement(const ledger::Announcement& announcement) override;

  Script* const script;
  shard::State shard;
  ledger::State ledger;
  node::NullLog<shard::Command> shard_log;
  node::NullLog<ledger::Command> ledger_log;
  node::ShardLoop shard_loop;
  node::LedgerLoop ledger_loop;
  std::deque<std::function<void()>> mail;
  std::vector<std::pair<shard::Tag, shard::Reply>> replies;
  std::vector<ledger::Reply> ledger_replies;
  std::vector<StepId> changed;
};

}  // namespace forebay::transcripts
