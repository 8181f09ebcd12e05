// What can be seen of a node from outside, and of the commands it logs: the facts that invariants
// go by.
//
// Calls come in the order in which things happen, one at a time, while the node runs an event: an
// observer must not call the node's methods that change it. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "codec/peer_messages.h"
#include "io/memory_disk.h"
#include "ledger/messages.h"
#include "ledger/step.h"
#include "shard/messages.h"
#include "shard/primary.h"

namespace forebay::simulation {

class Observer {
 public:
  virtual ~Observer() = default;
  // Committed, and about to be applied.
  virtual void OnShardCommand(ShardId, const shard::Command&) {}
  virtual void OnLedgerCommand(const ledger::Command&) {}
  // Answers, as they leave the node; they may be lost on the way.
  virtual void OnAssigned(SessionId, const shard::Assignment&) {}
  virtual void OnPushed(SessionId, const shard::RolloutMeta&, const shard::PushOutcome&) {}
  virtual void OnGroupPushed(const shard::PutGroup&, const shard::PutRolloutsReply&) {}
  virtual void OnRewarded(const shard::LateReward&, shard::PushResult) {}
  virtual void OnRenewed(SessionId, const shard::LeaseRef&, shard::LeaseAction) {}
  virtual void OnTrainerAnswer(const ledger::Command&, const ledger::Reply&) {}
  virtual void OnFetched(Generation, StepId, Revision, const ledger::MicroBatchRef&,
                         const absl::StatusOr<ledger::MicroBatchView>&) {}
  // Effects.
  virtual void OnPayloadDead(PayloadId) {}
  // The store has found that it cannot be read any more.
  virtual void OnPayloadLost(PayloadId) {}
  virtual void OnReserved(ShardId, const codec::Reserved&) {}
  virtual void OnStepChanged(const ledger::Step&) {}
  // The store's disk: what happened to a file there. `process`: which of the processes that follow
  // each other did it, as its segments' names say it.
  virtual void OnStoreAccess(uint64_t /*process*/, const io::MemoryAccess&) {}
  // The store has acknowledged a payload; these files hold it, or its parts.
  virtual void OnPayloadStored(PayloadId, const std::vector<std::string>& /*paths*/) {}
  // Time to look at everything.
  virtual void OnScan() {}
};

}  // namespace forebay::simulation
