// Drives the ledger: requests to its Primary, commands through its log to its State, effects to a
// port.
//
// As shard_loop.h: no threads, no clock, one caller at a time; the daemon and the simulator run
// this same loop.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "codec/peer_messages.h"
#include "ledger/messages.h"
#include "ledger/primary.h"
#include "ledger/state.h"
#include "node/log.h"

namespace forebay::node {

class LedgerPort {
 public:
  virtual ~LedgerPort() = default;
  virtual void OnReply(ledger::Tag tag, ledger::Reply&& reply) = 0;
  virtual void OnDead(const std::vector<PayloadId>& payloads) = 0;
  virtual void SendToShard(ShardId shard, const codec::NumberedMessage& message) = 0;
  virtual void AcknowledgeShard(ShardId shard, uint64_t number) = 0;
  virtual void OnStepChanged(StepId step) = 0;
  virtual void OnAnnouncement(const ledger::Announcement& announcement) = 0;
};

class LedgerLoop {
 public:
  LedgerLoop(ledger::State* state, Log<ledger::Command>* log, LedgerPort* port);

  void Propose(uint64_t now_ms, ledger::Tag tag, ledger::Command command);
  void FromShard(uint64_t now_ms, ShardId shard, const codec::NumberedMessage& message);
  void ShardAcknowledged(uint64_t now_ms, ShardId shard, uint64_t number);
  void OnSummary(uint64_t now_ms, codec::ReadySummary summary);
  void Tick(uint64_t now_ms);
  // Sends again what the shards have not acknowledged.
  void Resend();

  ledger::Primary& primary() { return primary_; }
  const ledger::State& state() const { return *state_; }
  LogPosition position() const { return position_; }

 private:
  void Run(uint64_t now_ms);
  void Deliver();

  ledger::State* const state_;
  Log<ledger::Command>* const log_;
  LedgerPort* const port_;
  ledger::Primary primary_;
  LogPosition position_;
  ledger::Output output_, more_;
  ledger::Effects effects_;
};

}  // namespace forebay::node
