// Writes facts down as lines of text, for the report of a violation.
//
// Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/event_queue.h"
#include "tests/simulation/observer.h"

namespace forebay::simulation {

class Trace final : public Observer {
 public:
  Trace(const EventQueue* queue, uint64_t from, std::vector<std::string>* lines)
      : queue_(queue), from_(from), lines_(lines) {}

  void OnShardCommand(ShardId shard, const shard::Command& command) override;
  void OnLedgerCommand(const ledger::Command& command) override;
  void OnAssigned(SessionId session, const shard::Assignment& assignment) override;
  void OnPushed(SessionId session, const shard::RolloutMeta& meta,
                const shard::PushOutcome& outcome) override;
  void OnGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) override;
  void OnRewarded(const shard::LateReward& reward, shard::PushResult result) override;
  void OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) override;
  void OnFetched(Generation generation, StepId step, Revision revision,
                 const ledger::MicroBatchRef& ref,
                 const absl::StatusOr<ledger::MicroBatchView>& view) override;
  void OnPayloadDead(PayloadId payload) override;
  void OnReserved(ShardId shard, const codec::Reserved& reserved) override;
  void OnStepChanged(const ledger::Step& step) override;

 private:
  template <class... Parts>
  void Add(const Parts&... parts);

  const EventQueue* const queue_;
  const uint64_t from_;
  std::vector<std::string>* const lines_;
};

}  // namespace forebay::simulation
