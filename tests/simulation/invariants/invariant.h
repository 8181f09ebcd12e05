// One invariant of the design's section 7: it sees the facts, keeps a model of its own, and says
// when something is wrong.
//
// Not thread-safe. Each lives for one history. The Checker hands every fact to every invariant, and
// remembers the first violation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/node.h"
#include "tests/simulation/observer.h"

namespace forebay::simulation {

struct Violation {
  std::string invariant;
  std::string what;
};

class Checker;

class Invariant : public Observer {
 public:
  Invariant(const char* name, Checker* checker) : name_(name), checker_(checker) {}
  const char* name() const { return name_; }

 protected:
  void Violated(const std::string& what);
  const Node& node() const;
  const HistoryOptions& options() const;

 private:
  const char* const name_;
  Checker* const checker_;
};

class Checker final : public Observer {
 public:
  Checker(const HistoryOptions& options, Stats* stats);
  void Watch(const Node* node) { node_ = node; }
  void Fail(const char* invariant, const std::string& what) {
    if (!violation_) violation_ = Violation{invariant, what};
  }
  const std::optional<Violation>& violation() const { return violation_; }
  const Node& node() const { return *node_; }
  const HistoryOptions& options() const { return options_; }

  void OnShardCommand(ShardId shard, const shard::Command& command) override;
  void OnLedgerCommand(const ledger::Command& command) override;
  void OnAssigned(SessionId session, const shard::Assignment& assignment) override;
  void OnPushed(SessionId session, const shard::RolloutMeta& meta,
                const shard::PushOutcome& outcome) override;
  void OnGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) override;
  void OnRewarded(const shard::LateReward& reward, shard::PushResult result) override;
  void OnRenewed(SessionId session, const shard::LeaseRef& lease,
                 shard::LeaseAction action) override;
  void OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) override;
  void OnFetched(Generation generation, StepId step, Revision revision,
                 const ledger::MicroBatchRef& ref,
                 const absl::StatusOr<ledger::MicroBatchView>& view) override;
  void OnPayloadDead(PayloadId payload) override;
  void OnPayloadLost(PayloadId payload) override;
  void OnReserved(ShardId shard, const codec::Reserved& reserved) override;
  void OnStepChanged(const ledger::Step& step) override;
  void OnStoreAccess(uint64_t process, const io::MemoryAccess& access) override;
  void OnPayloadStored(PayloadId payload, const std::vector<std::string>& paths) override;
  void OnScan() override;

 private:
  template <class F>
  void Tell(F tell) {
    ++stats_->checks;
    for (const auto& invariant : invariants_) tell(*invariant);
  }

  const HistoryOptions& options_;
  Stats* const stats_;
  const Node* node_ = nullptr;
  std::optional<Violation> violation_;
  std::set<uint64_t> rewinds_;  // that were answered, by request id
  std::vector<std::unique_ptr<Invariant>> invariants_;
};

std::unique_ptr<Invariant> MakeAccounting(Checker* checker);              // 3
std::unique_ptr<Invariant> MakeOneLiveLease(Checker* checker);            // 4
std::unique_ptr<Invariant> MakeStepCommittedOnce(Checker* checker);       // 5
std::unique_ptr<Invariant> MakeNoStaleRollout(Checker* checker);          // 6
std::unique_ptr<Invariant> MakeEqualPositionEqualHash(Checker* checker);  // 7
std::unique_ptr<Invariant> MakeSegmentHasOneWriter(Checker* checker);     // 8
std::unique_ptr<Invariant> MakePayloadsNamedByState(Checker* checker);    // 9
std::unique_ptr<Invariant> MakeUnlinkedWhenDead(Checker* checker);        // 10
std::unique_ptr<Invariant> MakeDamageNotServed(Checker* checker);         // 11
std::unique_ptr<Invariant> MakeMemoryLimits(Checker* checker);            // 12

}  // namespace forebay::simulation
