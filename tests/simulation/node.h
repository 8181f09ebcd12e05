// One node under test: the daemon's own shard loops and ledger loop over virtual time, with a
// network between them, a payload store that counts, logs in memory or the daemon's own on disks
// with faults, and a second replica that is given the same commands.
//
// Not thread-safe. Requests are what arrives at the node; an answer is called once, within the
// request or later, or never when the node restarts meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "node/ledger_loop.h"
#include "node/memory_relief.h"
#include "node/shard_loop.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/observer.h"
#include "tests/simulation/options.h"
#include "tests/simulation/payloads.h"
#include "tests/simulation/stats.h"

namespace forebay::simulation {

template <class R>
using Answer = std::function<void(R)>;

struct Surroundings;
class MachineDisk;
class PayloadDisk;

// Payloads and task contents that commands name.
struct Brought {
  std::vector<PayloadId> payloads;
  std::vector<PayloadId> contents;
};

class Node {
 public:
  // `replicas_differ` and `dies_twice` are told what is wrong.
  using Alarm = std::function<void(const char* invariant, const std::string& what)>;
  using Announced = std::function<void(const ledger::Announcement&)>;

  Node(const HistoryOptions& options, EventQueue* queue, Dice* dice, Stats* stats,
       Observer* observer, Alarm alarm, Announced announced);
  ~Node();

  void Acquire(ShardId shard, shard::Assign request, uint32_t wait_ms,
               Answer<shard::AssignReply> answer);
  // Stores the payloads (`payload_bytes` of each), waiting for memory if need be, and pushes.
  void Push(SessionId session, std::vector<shard::RolloutMeta> rollouts,
            Answer<shard::PutRolloutsReply> answer);
  void PushGroup(ShardId shard, shard::PutGroup group, Answer<shard::PutRolloutsReply> answer);
  void SetRewards(ShardId shard, shard::SetRewards rewards, Answer<shard::SetRewardsReply> answer);
  shard::RenewReply Renew(ShardId shard, SessionId session,
                          const std::vector<shard::LeaseRef>& leases);
  template <class R>
  void AskShard(ShardId shard, shard::Command command, Answer<R> answer) {
    ToShard(shard, std::move(command), [answer = std::move(answer)](shard::Reply& reply) {
      answer(std::get<R>(std::move(reply)));
    });
  }
  // Adds tasks whose contents are stored first.
  void AddTasks(ShardId shard, shard::AddTasks tasks, Answer<shard::AddTasksReply> answer);
  template <class R>
  void AskLedger(ledger::Command command, Answer<R> answer) {
    ToLedger(std::move(command), [answer = std::move(answer)](ledger::Reply& reply) {
      answer(std::get<R>(std::move(reply)));
    });
  }
  void PutColumns(ledger::PutColumns command, Answer<ledger::StatusReply> answer);
  using FetchAnswer = absl::StatusOr<ledger::MicroBatchView>;
  void Fetch(Generation generation, StepId step, Revision revision,
             const ledger::MicroBatchRef& ref, Answer<FetchAnswer> answer);

  // A shard that does not answer: the front of the node refuses what it is asked, and goes round
  // it.
  bool away(ShardId id) const;
  // One machine, or all, end, and start anew from what was committed; what waited there is
  // forgotten.
  void RestartOne();
  // A machine refused to start, for what it had stored is damaged: as it must, and all is over.
  bool refused() const { return refused_; }
  // Once a second of virtual time: memory, what was lost between the machines, waiting pushes,
  // trouble with a disk.
  void Maintain();
  void Heal();

  uint32_t shards() const { return static_cast<uint32_t>(shards_.size()); }
  ShardId ShardOf(uint64_t external_hash) const {
    return ShardId(static_cast<uint8_t>(external_hash % shards_.size()));
  }
  const shard::State& shard(ShardId id) const;
  const ledger::State& ledger() const;
  const Payloads& payloads() const { return payloads_; }
  const Payloads& contents() const { return contents_; }
  // Of commands on their way through the logs.
  Brought BroughtAndNotLogged() const;
  size_t waiting_pushes() const { return waiting_.size(); }
  size_t waiters(ShardId id) const;
  // Commands that were applied, and those on their way through the log.
  LogPosition position(ShardId id) const;
  size_t uncommitted(ShardId id) const;
  size_t uncommitted_of_ledger() const;
  // Of each machine's log.
  std::vector<node::LogQueue> LogQueues() const;
  // "" when each replica equals its twin and both did the same; else what differs.
  std::string CompareReplicas() const;

 private:
  struct ShardHost;
  struct LedgerHost;
  struct Waiting {
    uint64_t id;
    SessionId session;
    std::vector<shard::RolloutMeta> rollouts;
    Answer<shard::PutRolloutsReply> answer;
    uint64_t bytes;
  };

  Surroundings Around() const;
  void ToShard(ShardId shard, shard::Command command, std::function<void(shard::Reply&)> answer);
  void ToLedger(ledger::Command command, std::function<void(ledger::Reply&)> answer);
  struct PushJob;
  void Propose(SessionId session, const std::shared_ptr<PushJob>& job);
  void PushNow(SessionId session, std::vector<shard::RolloutMeta> rollouts,
               Answer<shard::PutRolloutsReply> answer);
  void ServeWaiting();
  void FreeUpMemory();
  // False if it does not fit, or does not wait any more.
  bool LetIn(uint64_t id);
  void DropFirst(std::vector<node::DropTarget> targets, std::vector<SourceId> wanted);
  // Facts of answers.
  void NoteAssigned(SessionId session, const shard::AssignReply& reply);
  void NotePushed(SessionId session, const shard::RolloutMeta& rollout,
                  const shard::PushOutcome& outcome);
  void NoteGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply);
  void NoteRewarded(const shard::SetRewards& rewards, const shard::SetRewardsReply& reply);
  void NoteTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply);
  // What is not taken is the caller's, who frees it, unless the shard has done so.
  void FreeRefused(PayloadId payload);
  void Die(const std::vector<PayloadId>& payloads, Payloads* store);
  FetchAnswer View(Generation generation, StepId step, Revision revision,
                   const ledger::MicroBatchRef& ref) const;
  // View and Load, of a micro-batch whose payloads are in memory.
  FetchAnswer FetchNow(Generation generation, StepId step, Revision revision,
                       const ledger::MicroBatchRef& ref);
  // Once these are synced, if they have bytes.
  void WhenWritten(const std::vector<PayloadId>& payloads, std::function<void()> then);
  void RestartStore(bool power);
  // What a load of the micro-batch's payloads would say, and what follows from that.
  absl::Status Load(const ledger::MicroBatchView& view);
  void DamageSome();
  void DropDamaged();
  // Of the shards and, as the last one, the ledger; all if there is no such machine.
  void Restart(uint64_t which);
  void CheckThatTheyFit() const;
  // The shard's process ends. Another one takes its state up after a while, or never.
  void Leave(ShardId shard);
  void Return(ShardId shard);
  void SomeLeave();
  void DamageSealed(ShardId shard);
  // The process ends.
  void LogFailed();
  // For each machine's, if they are on disks.
  void ForEachDisk(const std::function<void(MachineDisk&)>& act);
  void TroubleSomeDisk();
  void LookAtLogs();
  // Calls `deliver` after a while, more than once, or never.
  void Between(std::function<void()> deliver);
  // The next tick of the loops, at its time.
  void Arm();
  void SendSummaries();

  const HistoryOptions& options_;
  EventQueue* const queue_;
  Dice* const dice_;
  Stats* const stats_;
  Observer* const observer_;
  const Alarm alarm_;
  const Announced announced_;
  bool faults_ = true;
  bool refused_ = false;
  bool ending_ = false;  // a log has failed
  Payloads payloads_;
  Payloads contents_;
  std::unique_ptr<PayloadDisk> store_;  // if payloads have bytes
  std::vector<std::unique_ptr<ShardHost>> shards_;
  std::unique_ptr<LedgerHost> ledger_;
  std::deque<Waiting> waiting_;
  uint64_t last_waiting_ = 0;  // id
  node::ReliefClock relief_;
  bool serving_ = false;
  uint64_t armed_ms_ = UINT64_MAX;
};

}  // namespace forebay::simulation
