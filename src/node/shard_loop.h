// Drives one shard: requests to its Primary, commands through its log to its State, effects to a
// port.
//
// No threads, no clock: the caller passes the time and calls from one thread at a time; the port
// must not call back into the same loop. The daemon and the simulator run this same loop. The
// state, the log and the port outlive it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "codec/peer_messages.h"
#include "node/log.h"
#include "shard/messages.h"
#include "shard/primary.h"
#include "shard/state.h"

namespace forebay::node {

// Where a shard's effects go; called from within the loop, after the command that caused them is
// committed.
class ShardPort {
 public:
  virtual ~ShardPort() = default;
  virtual void OnReply(shard::Tag tag, shard::Reply&& reply) = 0;
  virtual void OnDead(const std::vector<PayloadId>& payloads,
                      const std::vector<PayloadId>& contents) = 0;
  // Nobody reads these before a rewind.
  virtual void OnCold(const std::vector<PayloadId>& payloads) = 0;
  virtual void SendToLedger(const codec::NumberedMessage& message) = 0;
  virtual void AcknowledgeLedger(uint64_t number) = 0;
  // What is ready has changed.
  virtual void OnSummary(const codec::ReadySummary& summary) = 0;
};

class ShardLoop {
 public:
  // `applied`: the position of the last command in `state`.
  ShardLoop(shard::State* state, Log<shard::Command>* log, ShardPort* port, uint64_t now_ms,
            LogPosition applied = {});

  void Acquire(uint64_t now_ms, shard::Tag tag, shard::Assign request, uint32_t wait_ms);
  void Propose(uint64_t now_ms, shard::Tag tag, shard::Command command);
  void FromLedger(uint64_t now_ms, const codec::NumberedMessage& message);
  void LedgerAcknowledged(uint64_t now_ms, uint64_t number);
  // Expiries, timeouts and waits that end; cheap when there is nothing to do.
  void Tick(uint64_t now_ms);
  // The log has committed more.
  void OnCommitted(uint64_t now_ms) { Run(now_ms); }
  // Sends again what the ledger has not acknowledged.
  void Resend();

  shard::Primary& primary() { return primary_; }
  const shard::State& state() const { return *state_; }
  // Of the last command that was applied, and how many are proposed and not committed yet.
  LogPosition position() const { return proposed_.applied(); }
  size_t uncommitted() const { return proposed_.size(); }
  LogQueue log_queue() const { return proposed_.queue(); }
  // Not while a command runs.
  void Snapshot(SnapshotDone done) { proposed_.Snapshot(std::move(done)); }

 private:
  void Run(uint64_t now_ms);
  void Deliver();
  void Summarize();

  shard::State* const state_;
  ShardPort* const port_;
  shard::Primary primary_;
  Proposed<shard::Tag, shard::Command> proposed_;
  std::pair<shard::Tag, shard::Command> taken_;
  // Reused between calls, so that the hot path does not allocate.
  shard::Output output_;
  shard::Effects effects_;
  bool ready_may_have_changed_ = true;
  bool ready_moved_ = false;  // since the ledger was last told
  bool refresh_ = false;      // whatever changed is to be told
  uint64_t refresh_due_ms_ = 0;
  codec::ReadySummary summary_;  // as last told
};

}  // namespace forebay::node
