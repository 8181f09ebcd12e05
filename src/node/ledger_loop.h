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
  // `applied`: the position of the last command in `state`.
  LedgerLoop(ledger::State* state, Log<ledger::Command>* log, LedgerPort* port,
             LogPosition applied = {});

  void Propose(uint64_t now_ms, ledger::Tag tag, ledger::Command command);
  void FromShard(uint64_t now_ms, ShardId shard, const codec::NumberedMessage& message);
  void ShardAcknowledged(uint64_t now_ms, ShardId shard, uint64_t number);
  void OnSummary(uint64_t now_ms, codec::ReadySummary summary);
  void Tick(uint64_t now_ms);
  // The log has committed more.
  void OnCommitted(uint64_t now_ms) { Run(now_ms); }
  // Sends again what the shards have not acknowledged.
  void Resend();

  ledger::Primary& primary() { return primary_; }
  const ledger::State& state() const { return *state_; }
  // Of the last command that was applied, and how many are proposed and not committed yet.
  LogPosition position() const { return proposed_.applied(); }
  size_t uncommitted() const { return proposed_.size(); }
  LogQueue log_queue() const { return proposed_.queue(); }
  // Not while a command runs.
  void Snapshot(SnapshotDone done) { proposed_.Snapshot(std::move(done)); }

 private:
  void Run(uint64_t now_ms);
  void Deliver();

  ledger::State* const state_;
  LedgerPort* const port_;
  ledger::Primary primary_;
  Proposed<ledger::Tag, ledger::Command> proposed_;
  std::pair<ledger::Tag, ledger::Command> taken_;
  ledger::Output output_;
  ledger::Effects effects_;
};

}  // namespace forebay::node
