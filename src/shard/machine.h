// The inside of State: the data of a shard, and one member function for each thing that a command
// does to it.
//
// Only for this folder. Replicated state; not thread-safe. Slots are those of rollout::Tables. Each
// source file beside this one holds the functions of one section.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/prng.h"
#include "codec/peer_channel.h"
#include "curriculum/curriculum.h"
#include "rollout/advantage.h"
#include "rollout/tables.h"
#include "shard/admission.h"
#include "shard/check_rollout.h"
#include "shard/eval_run.h"
#include "shard/history.h"
#include "shard/kept.h"
#include "shard/sessions.h"
#include "shard/source_state.h"
#include "shard/state.h"
#include "shard/step_hold.h"
#include "shard/supply.h"

namespace forebay::shard {

class Machine {
 public:
  explicit Machine(const Options& options);

  void Apply(const Command& command, Tag tag, Effects* effects);
  void Snapshot(codec::Writer& writer) const;
  bool Restore(codec::Reader& reader);
  std::string CheckInvariants() const;

  // Queries.
  const Options& options() const { return options_; }
  const curriculum::Curriculum& curriculum() const { return curriculum_; }
  const rollout::Tables& tables() const { return tables_; }
  const Sessions& sessions() const { return sessions_; }
  const std::vector<SourceState>& sources() const { return sources_; }
  const std::vector<EvalRun>& evals() const { return evals_; }
  const codec::VersionState& versions() const { return versions_; }
  const codec::PeerOutbox& outbox() const { return outbox_; }
  const codec::PeerInbox& inbox() const { return inbox_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  uint64_t retained_bytes() const { return retained_bytes_; }
  const KeptRollouts& kept() const { return kept_; }
  uint64_t memory_bytes() const;
  const codec::SourceSettings& SettingsOf(SourceId source) const {
    const curriculum::Source* const found = curriculum_.source(source);
    FOREBAY_CHECK(found != nullptr);
    return found->settings();
  }
  // The newest version that a step has trained to, on the current branch; every later step trains
  // on it or a newer one.
  uint32_t train_floor() const { return train_floor_; }
  // The settings' limit of lag, and whether rollouts beyond it are of no use at all.
  bool UselessAt(uint32_t version, const codec::SourceSettings& settings) const {
    return shard::UselessAt(version, train_floor_, settings);
  }
  PolicyVersion VersionOf(uint32_t attempt) const {
    const rollout::AttemptRecord& record = tables_.attempt(attempt);
    const uint32_t eval = tables_.group(record.group).eval;
    if (eval != rollout::kNone) return evals_[eval].version;
    return {versions_.branch, record.version};
  }
  // The answer of the session's last request: what is left of it.
  AssignReply LastAnswer(const SessionRecord& session) const;
  Available WhatIsAvailable(const Assign& request) const;
  // `limit`: of Admission.
  SourceSupply SupplyOf(const curriculum::Source& source, uint64_t limit,
                        uint64_t new_groups_max) const;
  // What is wrong with each rollout of a group that was pushed whole; empty: nothing.
  std::vector<PushOutcome> CheckPutGroup(const PutGroup& c) const;
  bool Remembers(uint64_t put_group) const { return put_groups_.contains(put_group); }
  absl::Status CheckEval(const StartEval& c) const;
  absl::Status CheckDrop(const DropByOperator& c) const;
  uint32_t FindEval(EvalRunId run) const;  // kNone: there is none
  Admission admission() const;
  StepId StepOf(uint32_t group) const;

 private:
  struct HandOut;
  enum class Judgement : uint8_t { kTrain, kDrop, kBaselineOnly };
  struct Verdict {
    Judgement judgement = Judgement::kTrain;
    uint32_t version = 0;  // by lag_of
    uint32_t mask_below = 0;
  };

  // Dispatch (machine.cc).
  void Run(const OpenSession& c, Tag tag, Effects* effects);
  void Run(const AddTasks& c, Tag tag, Effects* effects);
  void Run(const Assign& c, Tag tag, Effects* effects);
  void Run(const PutRollouts& c, Tag tag, Effects* effects);
  void Run(const PutGroup& c, Tag tag, Effects* effects);
  void Run(const Release& c, Tag tag, Effects* effects);
  void Run(const Fail& c, Tag tag, Effects* effects);
  void Run(const Expire& c, Tag tag, Effects* effects);
  void Run(const GroupsTimedOut& c, Tag tag, Effects* effects);
  void Run(const SetRewards& c, Tag tag, Effects* effects);
  void Run(const SetQuarantine& c, Tag tag, Effects* effects);
  void Run(const StartEval& c, Tag tag, Effects* effects);
  void Run(const DropForBudget& c, Tag tag, Effects* effects);
  void Run(const FromLedger& c, Tag tag, Effects* effects);
  void Run(const LedgerAcknowledged& c, Tag tag, Effects* effects);
  void Run(const DropDamaged& c, Tag tag, Effects* effects);
  void Run(const DropByOperator& c, Tag tag, Effects* effects);
  SourceState& SourceOf(uint32_t group) {
    return sources_[tables_.group(group).task.source().value];
  }
  HandOutQueue& QueueOf(uint32_t group);
  const codec::SourceSettings& SettingsOfGroup(uint32_t group) const {
    return SettingsOf(tables_.group(group).task.source());
  }

  // Hand-out (assign.cc).
  void HandOutEvals(const Assign& c, bool share_only, HandOut* out);
  void HandOutQueued(HandOutQueue& queue, uint64_t limit, HandOut* out);
  void HandOutTrain(const Assign& c, HandOut* out);
  void DropOldPartial(uint32_t attempt, Effects* effects);
  bool BeginEvalGroup(uint32_t eval);
  void BeginTrainGroup(SourceId source, std::vector<uint64_t>* limits);
  void FillFromGroup(uint32_t group, Assignment* assignment) const;
  void FillFromAttempt(uint32_t attempt, Assignment* assignment) const;

  // Pushes (push.cc, put_group.cc).
  PushOutcome Put(const RolloutMeta& meta, SessionRecord& session, Effects* effects);
  PushOutcome PutFound(uint32_t attempt, const RolloutMeta& meta, PayloadId* kept,
                       Effects* effects);
  PushOutcome PutLate(uint32_t attempt);
  void PutPartial(uint32_t attempt, const RolloutMeta& meta, PolicyVersion assigned,
                  Effects* effects);
  void PutAborted(uint32_t attempt, const RolloutMeta& meta, Effects* effects);
  GroupId AddPutGroup(const PutGroup& c, Effects* effects);
  void RepeatPutGroup(const PutGroup& c, Effects* effects);
  PushResult SetReward(const LateReward& reward, Effects* effects);
  Refusal CheckStale(std::span<const SequenceMeta> sequences, PolicyVersion assigned,
                     const codec::SourceSettings& settings) const;
  void AcceptOrDrop(uint32_t attempt, const RolloutMeta& meta, PolicyVersion assigned,
                    Effects* effects);

  // Leases and groups (groups.cc).
  void EndLease(uint32_t attempt);
  void Requeue(uint32_t attempt);
  // The attempt did not succeed. In rounds: failures of different attempts of a group count once
  // for the task.
  void FailAttempt(uint32_t attempt, bool in_rounds, Effects* effects);
  bool ScreenedOut(uint32_t group);
  void EndScreening(uint32_t group);
  void FinishIfComplete(uint32_t group, Effects* effects);
  void Complete(uint32_t group, Effects* effects);
  void CompleteEval(uint32_t group, Effects* effects);
  void EndEvalIfDone(EvalRun* run);
  void DropEvalGroup(uint32_t group);
  void MakeReady(uint32_t group);
  void DropRollout(uint32_t rollout, DropReason reason, Effects* effects);
  void DropGroup(uint32_t group, DropReason reason, rollout::CloseReason close, Effects* effects);
  void LeaveList(uint32_t group);
  void CloseAttempts(uint32_t group, Effects* effects);
  void CloseGroup(uint32_t group, rollout::CloseReason close, Effects* effects);
  void DropQuarantined(SourceId source, Effects* effects);
  void FreePayload(PayloadId payload, uint64_t bytes, Effects* effects);

  // What is lost, and what an operator drops (drops.cc).
  uint32_t MarkDamaged(const DamagedPayload& lost, Effects* effects);
  void DropLostPartial(uint32_t attempt, Effects* effects);
  void DropMarked(uint32_t group, Effects* effects);
  void TakeOut(uint32_t group, const std::vector<uint32_t>& rollouts, DropReason reason,
               Effects* effects);

  // The ledger's messages (steps.cc, rewind.cc, versions.cc).
  void Run(const codec::SourceChanged& m, Effects* effects);
  void Run(const codec::VersionState& m, Effects* effects);
  void Run(const codec::Reserve& m, Effects* effects);
  void Run(const codec::Unreserve& m, Effects* effects);
  void Run(const codec::StepCommitted& m, Effects* effects);
  void Run(const codec::StepReplanned& m, Effects* effects);
  void Run(const codec::StepsReleased& m, Effects* effects);
  void Run(const codec::StepsCovered& m, Effects* effects);
  void Run(const codec::Rewound& m, Effects* effects);
  void Send(codec::ToLedger message, Effects* effects);
  uint32_t YoungestOpen(const std::vector<SourceId>& spared) const;
  uint32_t StalestReady(const std::vector<SourceId>& spared) const;
  Verdict Judge(uint32_t rollout, const codec::SourceSettings& settings, uint32_t max_lag,
                uint32_t train) const;
  bool Cull(uint32_t group, uint32_t max_lag, uint32_t train, Effects* effects);
  codec::GroupReport Report(uint32_t group, uint32_t max_lag, uint32_t train) const;
  // Whether ready group `a` comes before `b`: the older version, then the earlier completed.
  bool Staler(uint32_t a, uint32_t b) const;
  uint32_t OldestReady(const codec::Reserve& m) const;
  void ReserveGroup(uint32_t group, StepHold& hold);
  void GiveBack(uint32_t group, Effects* effects);
  void CommitGroup(uint32_t group, const codec::StepCommitted& m, Effects* effects);
  // A trained group's payloads go; and it is as it was before its step's commit.
  void ReleaseGroup(uint32_t group, const codec::KeepRule& keep, Effects* effects);
  bool KeepForPeople(uint32_t rollout, const codec::KeepRule& keep, Effects* effects);
  void TakeBackGroup(uint32_t group, Revision revision);
  void DropHolds(StepId served_again, Effects* effects);
  void RaiseFloor(uint32_t number, Effects* effects);
  void CullReady(Effects* effects);
  void ChangeBranch(Effects* effects);
  void ReleaseCredits();

  // Invariants (invariants.cc).
  std::string CheckSources() const;
  std::string CheckLists() const;
  std::string CheckEvals() const;
  std::string CheckSessions() const;

  Options options_;
  curriculum::Curriculum curriculum_;
  rollout::Tables tables_;
  Sessions sessions_;
  std::vector<SourceState> sources_;  // by id
  std::vector<EvalRun> evals_;
  std::vector<StepHold> holds_;     // by step; none is empty
  std::vector<StepHold> retained_;  // committed steps whose payloads stay, likewise
  KeptRollouts kept_;
  History history_;
  std::vector<Unpublished> unpublished_;
  rollout::OrderList closed_;  // oldest first
  codec::VersionState versions_;
  uint32_t train_floor_ = 0;
  uint64_t sequence_ = 0;  // of beginnings, completions and evaluation runs
  uint64_t payload_bytes_ = 0;
  uint64_t retained_bytes_ = 0;
  Prng prng_;
  codec::PeerOutbox outbox_;
  codec::PeerInbox inbox_;
  // Requests of PutGroup, oldest first, and the groups that they made.
  std::deque<std::pair<uint64_t, GroupId>> put_group_order_;
  absl::flat_hash_map<uint64_t, GroupId> put_groups_;  // the same; never iterated
  // Scratch, not state.
  std::vector<uint64_t> limits_;
  std::vector<uint8_t> eligible_;
  std::vector<double> rewards_;
};

}  // namespace forebay::shard
