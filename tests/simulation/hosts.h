// Inside a Node: one machine each with its loop, its log and its twin, a second replica that never
// restarts.
//
// Only for node.cc and hosts.cc. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codec/snapshot_parts.h"
#include "tests/simulation/node.h"
#include "tests/simulation/virtual_log.h"

namespace forebay::simulation {

// Who waits for which answer; never iterated.
template <class Reply>
class CallTable {
 public:
  uint64_t Add(std::function<void(Reply&)> answer) {
    calls_.emplace(++last_, std::move(answer));
    return last_;
  }
  void Answer(uint64_t tag, Reply& reply) {
    const auto found = calls_.find(tag);
    if (found == calls_.end()) return;
    auto answer = std::move(found->second);
    calls_.erase(found);
    answer(reply);
  }
  void Clear() { calls_.clear(); }

 private:
  uint64_t last_ = 0;
  absl::flat_hash_map<uint64_t, std::function<void(Reply&)>> calls_;
};

// A snapshot of a twin that is written a piece a command, as the daemon's are while their machines
// go on.
template <class State>
class TwinSnapshot {
 public:
  // Before a command.
  void Step(const State& twin, const Node::Alarm& alarm);

 private:
  static constexpr uint64_t kCommandsBetween = 50;
  std::unique_ptr<codec::Parts> parts_;
  std::string written_;
  uint64_t expected_ = 0;  // hash
  uint64_t commands_ = 0;
};

struct Node::ShardHost final : node::ShardPort {
  ShardHost(Node* node, ShardId id);

  uint64_t AddCall(std::function<void(shard::Reply&)> answer) {
    return calls.Add(std::move(answer));
  }
  void Restart();
  void OnCommitted();
  std::string Compare() const;
  // No `wanted` source: all are.
  GroupPlace PlaceOf(AttemptId attempt, const std::vector<SourceId>& wanted) const;

  // Into the twin; and what to do about payloads that a lost command brought.
  void Committing(const shard::Command& command);
  void Lost(const shard::Command& command);
  void OnReply(shard::Tag tag, shard::Reply&& reply) override;
  void OnDead(const std::vector<PayloadId>& payloads,
              const std::vector<PayloadId>& contents) override;
  void OnCold(const std::vector<PayloadId>& payloads) override;
  void SendToLedger(const codec::NumberedMessage& message) override;
  void AcknowledgeLedger(uint64_t number) override;
  void OnSummary(const codec::ReadySummary& summary) override;

  Node* const node;
  const ShardId id;
  std::unique_ptr<shard::State> state;
  shard::State twin;
  TwinSnapshot<shard::State> twin_snapshot;
  VirtualLog<shard::Command> log;
  std::unique_ptr<node::ShardLoop> loop;
  CallTable<shard::Reply> calls;
  uint64_t last_to_ledger = 0;                 // messages up to here were seen before
  uint64_t dead_hash = 0, twin_dead_hash = 0;  // of what was freed, in order
};

struct Node::LedgerHost final : node::LedgerPort {
  explicit LedgerHost(Node* node);
  void StartLoop();

  uint64_t AddCall(std::function<void(ledger::Reply&)> answer) {
    return calls.Add(std::move(answer));
  }
  void Restart();
  void OnCommitted();
  std::string Compare() const;

  void Committing(const ledger::Command& command);
  void Lost(const ledger::Command& command);
  void OnReply(ledger::Tag tag, ledger::Reply&& reply) override;
  void OnDead(const std::vector<PayloadId>& payloads) override;
  void SendToShard(ShardId shard, const codec::NumberedMessage& message) override;
  void AcknowledgeShard(ShardId shard, uint64_t number) override;
  void OnStepChanged(StepId step) override;
  void OnAnnouncement(const ledger::Announcement& announcement) override;

  Node* const node;
  std::unique_ptr<ledger::State> state;
  ledger::State twin;
  TwinSnapshot<ledger::State> twin_snapshot;
  VirtualLog<ledger::Command> log;
  std::unique_ptr<node::LedgerLoop> loop;
  CallTable<ledger::Reply> calls;
  uint64_t dead_hash = 0, twin_dead_hash = 0;
};

}  // namespace forebay::simulation
