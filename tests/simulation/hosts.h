// Inside a Node: one machine each with its loop.
//
// Only for node.cc, restarts.cc and hosts.cc. Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/simulation/logged_machine.h"
#include "tests/simulation/node.h"

namespace forebay::simulation {

inline constexpr const char* kPayloadsExist = "9 payloads named by state exist";

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

struct Node::ShardHost final : node::ShardPort {
  using ShardMachine = LoggedMachine<shard::Command, shard::State, shard::Effects>;
  using Answered = std::function<void(shard::Reply&)>;
  ShardHost(Node* node, ShardId id);

  const shard::State& state() const { return machine.state(); }
  void StartLoop();
  // False: the history ends.
  bool Restart(MachineDisk::CrashKind kind, bool flip);
  void OnCommitted();
  // As the daemon: while the log is full, pushes wait, and other requests are refused.
  void Request(shard::Command command, Answered answer);
  void Propose(shard::Command command, Answered answer);
  bool LogFull() const { return machine.log().queue().full(); }
  bool away() const { return loop == nullptr; }
  std::string Compare() const;
  // No `wanted` source: all are.
  void AddBroughtTo(Brought* brought) const;

  // What to do about a command that was committed and whose effects nobody heard, and about bytes
  // that a lost one brought.
  void Recovered(const shard::Command& command, shard::Effects& effects);
  void Lost(const shard::Command& command);
  void Tell(const shard::Command& command, const shard::Reply& reply);
  void NoteSent(const codec::NumberedMessage& message);
  void OnReply(shard::Tag tag, shard::Reply&& reply) override;
  void OnDead(const std::vector<PayloadId>& payloads,
              const std::vector<PayloadId>& contents) override;
  void OnCold(const std::vector<PayloadId>& payloads) override;
  void SendToLedger(const codec::NumberedMessage& message) override;
  void AcknowledgeLedger(uint64_t number) override;
  void OnSummary(const codec::ReadySummary& summary) override;

  Node* const node;
  const ShardId id;
  uint64_t last_to_ledger = 0;                 // messages up to here were seen before
  uint64_t dead_hash = 0, twin_dead_hash = 0;  // of what was freed, in order
  CallTable<shard::Reply> calls;
  std::deque<std::pair<shard::Command, Answered>> held;  // pushes that wait for the log
  ShardMachine machine;
  std::unique_ptr<node::ShardLoop> loop;  // null while it is away
};

struct Node::LedgerHost final : node::LedgerPort {
  using LedgerMachine = LoggedMachine<ledger::Command, ledger::State, ledger::Effects>;
  using Answered = std::function<void(ledger::Reply&)>;
  explicit LedgerHost(Node* node);

  const ledger::State& state() const { return machine.state(); }
  void StartLoop();
  bool Restart(MachineDisk::CrashKind kind, bool flip);
  void OnCommitted();
  void Request(ledger::Command command, Answered answer);
  bool LogFull() const { return machine.log().queue().full(); }
  std::string Compare() const;
  void AddBroughtTo(Brought* brought) const;

  void Recovered(const ledger::Command& command, ledger::Effects& effects);
  void Lost(const ledger::Command& command);
  void OnReply(ledger::Tag tag, ledger::Reply&& reply) override;
  void OnDead(const std::vector<PayloadId>& payloads) override;
  void SendToShard(ShardId shard, const codec::NumberedMessage& message) override;
  void AcknowledgeShard(ShardId shard, uint64_t number) override;
  void OnStepChanged(StepId step) override;
  void OnAnnouncement(const ledger::Announcement& announcement) override;

  Node* const node;
  uint64_t dead_hash = 0, twin_dead_hash = 0;
  CallTable<ledger::Reply> calls;
  LedgerMachine machine;
  std::unique_ptr<node::LedgerLoop> loop;
};

}  // namespace forebay::simulation
