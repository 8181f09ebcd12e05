// 3. At every moment each acknowledged rollout is exactly one of: held, reserved by one revision,
// in one committed step of the current branch, dropped with a reason.
//
// The model: a rollout is known by its payload from the acknowledgement on; it is gone when its
// payload is declared dead, and trained when its shard hears that a step whose plan names it is
// committed. A rewind makes it reserved again or dropped. What the shard holds must be what is not
// gone, one by one, and its counters must be the model's. What is kept for people stays trained, or
// becomes dropped by a rewind, and its bytes are there all the same.
#include <map>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "curriculum/curriculum.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

struct Known {
  ShardId shard;
  SourceId source;
  bool gone = false;
  bool trained = false;
  StepId step;        // that trained it
  bool kept = false;  // taken back, and its bytes stay for people
};

struct Sums {
  uint64_t accepted = 0, gone = 0, trained = 0, dropped = 0;
  uint64_t held = 0, reserved = 0, retained = 0, trained_and_there = 0, eval_held = 0;
};

class Accounting final : public Invariant {
 public:
  explicit Accounting(Checker* checker)
      : Invariant("3 accounting of acknowledged rollouts", checker) {}

  void OnAssigned(SessionId, const shard::Assignment& assignment) override {
    source_of_.insert_or_assign(assignment.attempt.value, assignment.task.source());
  }

  void OnPushed(SessionId, const shard::RolloutMeta& meta,
                const shard::PushOutcome& outcome) override {
    if (outcome.result != shard::PushResult::kAccepted || meta.partial) return;
    const ShardId shard = meta.lease.attempt.shard();
    const auto source = source_of_.find(meta.lease.attempt.value);
    if (source == source_of_.end())
      return Violated(absl::StrCat("attempt ", meta.lease.attempt.value, " was never assigned"));
    const codec::SourceSettings& settings =
        node().shard(shard).curriculum().source(source->second)->settings();
    const bool retried = meta.status == shard::RolloutStatus::kAborted &&
                         settings.aborted == codec::AbortedRule::kRetry;
    if (retried) return;
    if (!taken_.insert({meta.lease.attempt.value, meta.lease.token}).second) {
      return Violated(absl::StrCat("attempt ", meta.lease.attempt.value,
                                   " is accepted twice under token ", meta.lease.token));
    }
    Accept(shard, source->second, meta.payload);
  }

  void OnGroupPushed(const shard::PutGroup& group, const shard::PutRolloutsReply& reply) override {
    for (size_t i = 0; i < group.rollouts.size() && i < reply.outcomes.size(); ++i) {
      if (reply.outcomes[i].result != shard::PushResult::kAccepted) continue;
      Accept(node().ShardOf(group.task.external_hash), group.source, group.rollouts[i].payload);
    }
  }

  void OnPayloadDead(PayloadId payload) override {
    const auto found = index_.find(payload.value);
    if (found != index_.end()) known_[found->second].gone = true;
  }

  void OnStepChanged(const ledger::Step& step) override {
    if (step.state != ledger::StepState::kSealed) return;
    std::vector<PayloadId>& plan = plans_[{step.step, step.revision}];
    plan.clear();
    for (const ledger::HeldRollout& rollout : step.rollouts) plan.push_back(rollout.payload);
  }

  void OnShardCommand(ShardId shard, const shard::Command& command) override {
    const auto* message = std::get_if<shard::FromLedger>(&command);
    if (message == nullptr || message->number != node().shard(shard).from_ledger() + 1) return;
    if (const auto* committed = std::get_if<codec::StepCommitted>(&message->message)) {
      OnCommitted(shard, *committed);
    } else if (const auto* rewound = std::get_if<codec::Rewound>(&message->message)) {
      OnRewound(shard, *rewound);
    }
  }

  void OnScan() override {
    sums_.clear();
    for (const Known& rollout : known_) {
      Sums& sums = sums_[{rollout.shard, rollout.source}];
      ++sums.accepted;
      sums.trained += rollout.trained;
      sums.dropped += (rollout.gone || rollout.kept) && !rollout.trained;
      sums.trained_and_there += rollout.trained && !rollout.gone;
    }
    for (const auto& [shard, payload] : taken_back_) {
      if (node().payloads().Alive(payload)) {
        return Violated(absl::StrCat("payload ", payload.value, " of shard ", shard.value,
                                     " was taken back by a rewind, and is still there"));
      }
    }
    taken_back_.clear();
    uint64_t kept = 0;
    for (const Known& rollout : known_) kept += !rollout.gone;
    uint64_t seen = 0;
    for (uint32_t s = 0; s < node().shards(); ++s) {
      const ShardId shard(static_cast<uint8_t>(s));
      const std::string broken = node().shard(shard).CheckInvariants();
      if (!broken.empty()) return Violated(absl::StrCat("shard ", s, ": ", broken));
      seen += CheckRollouts(shard);
      CheckCounters(shard);
      CheckReserved(shard);
    }
    if (seen != kept) {
      Violated(absl::StrCat(kept, " acknowledged rollouts are not gone, and ", seen, " are there"));
    }
    const absl::Status status = node().ledger().InvariantsHold();
    if (!status.ok()) Violated(absl::StrCat("ledger: ", status.message()));
  }

 private:
  void OnCommitted(ShardId shard, const codec::StepCommitted& committed) {
    for (const PayloadId payload : plans_[{committed.step, committed.revision}]) {
      const auto found = index_.find(payload.value);
      if (found == index_.end()) {
        return Violated(absl::StrCat("step ", committed.step.value, " trains payload ",
                                     payload.value, ", which is of no acknowledged rollout"));
      }
      Known& rollout = known_[found->second];
      if (rollout.shard != shard) continue;
      if (rollout.trained || rollout.gone) {
        return Violated(absl::StrCat("step ", committed.step.value, " trains payload ",
                                     payload.value, ", which is ",
                                     rollout.trained ? "trained" : "dropped", " already"));
      }
      rollout.trained = true;
      rollout.step = committed.step;
    }
  }

  void OnRewound(ShardId shard, const codec::Rewound& rewound) {
    std::set<PayloadId> kept;
    uint64_t cursor = 0;
    for (const shard::RolloutView& view : node().shard(shard).Kept(&cursor, SIZE_MAX)) {
      kept.insert(view.payload);
    }
    for (size_t i = 0; i < known_.size(); ++i) {
      Known& rollout = known_[i];
      if (rollout.shard != shard || !rollout.trained || rollout.step <= rewound.step) continue;
      rollout.trained = false;
      if (rollout.step > rewound.served_again && kept.contains(payloads_[i])) {
        rollout.kept = true;
      } else if (rollout.step > rewound.served_again) {
        taken_back_.emplace_back(shard, payloads_[i]);
      } else if (rollout.gone) {
        Violated(absl::StrCat("step ", rollout.step.value, " is served again without payload ",
                              payloads_[i].value));
      }
    }
  }

  void Accept(ShardId shard, SourceId source, PayloadId payload) {
    index_[payload.value] = known_.size();
    known_.push_back({shard, source, !node().payloads().Alive(payload)});
    payloads_.push_back(payload);
  }

  // Every rollout that is held is one that was acknowledged and is not gone.
  uint64_t CheckRollouts(ShardId shard) {
    uint64_t cursor = 0;
    uint64_t seen = 0;
    for (const shard::RolloutView& view : node().shard(shard).Rollouts(&cursor, SIZE_MAX)) {
      Sums& sums = sums_[{shard, view.task.source()}];
      if (view.payload == PayloadId()) {
        ++sums.eval_held;
        continue;
      }
      ++(view.state == shard::GroupState::kReserved  ? sums.reserved
         : view.state == shard::GroupState::kTrained ? sums.retained
                                                     : sums.held);
      const auto found = index_.find(view.payload.value);
      if (found == index_.end() || known_[found->second].gone) {
        Violated(absl::StrCat("rollout ", view.rollout.value, " is held, and was ",
                              found == index_.end() ? "never acknowledged" : "dropped"));
      }
      ++seen;
    }
    cursor = 0;
    for (const shard::RolloutView& view : node().shard(shard).Kept(&cursor, SIZE_MAX)) {
      const auto found = index_.find(view.payload.value);
      const Known* known = found == index_.end() ? nullptr : &known_[found->second];
      if (known == nullptr || known->gone || !(known->trained || known->kept)) {
        Violated(absl::StrCat("rollout ", view.rollout.value, " is kept for people, and was ",
                              known == nullptr ? "never acknowledged"
                              : known->gone    ? "dropped"
                                               : "never trained"));
      } else if (known->trained) {
        ++sums_[{shard, view.task.source()}].retained;
      }
      ++seen;
    }
    return seen;
  }

  void CheckCounters(ShardId shard) {
    for (const shard::SourceView& view : node().shard(shard).Sources()) {
      const Sums& sums = sums_[{shard, view.source}];
      const shard::SourceCounters& counters = *view.counters;
      uint64_t dropped = counters.evaluated + sums.eval_held;
      for (const uint64_t count : counters.dropped) dropped += count;
      const auto compare = [&](const char* what, uint64_t counted, uint64_t known) {
        if (counted == known) return;
        Violated(absl::StrCat("shard ", shard.value, " source ", view.source.value, ": ", what, " ",
                              counted, ", from outside ", known));
      };
      compare("accepted", counters.accepted, sums.accepted);
      compare("trained", counters.trained, sums.trained);
      compare("trained and kept", sums.retained, sums.trained_and_there);
      compare("dropped and evaluated", dropped, sums.dropped);
      compare("held", counters.held, sums.held + sums.eval_held);
      compare("reserved", counters.reserved, sums.reserved);
    }
  }

  // With no message on its way, the groups that a shard has reserved are those that live steps
  // hold.
  void CheckReserved(ShardId shard) {
    if (!node().ledger().outbox(shard).Unacknowledged().empty()) return;
    if (!node().shard(shard).to_ledger().Unacknowledged().empty()) return;
    std::set<std::pair<StepId, PayloadId>> reserved, planned;
    uint64_t cursor = 0;
    for (const shard::RolloutView& view : node().shard(shard).Rollouts(&cursor, SIZE_MAX)) {
      if (view.state == shard::GroupState::kReserved) reserved.insert({view.step, view.payload});
    }
    for (const ledger::Step* step : node().ledger().StepsNewestFirst()) {
      if (!step->live()) continue;
      for (const ledger::HeldRollout& rollout : step->rollouts) {
        if (rollout.rollout.shard() == shard) planned.insert({step->step, rollout.payload});
      }
    }
    if (reserved != planned) {
      Violated(absl::StrCat("shard ", shard.value, " holds ", reserved.size(),
                            " rollouts reserved, the ledger ", planned.size(), ", or others"));
    }
  }

  absl::flat_hash_map<uint64_t, SourceId> source_of_;         // by attempt; never iterated
  absl::flat_hash_set<std::pair<uint64_t, uint32_t>> taken_;  // attempt, token; never iterated
  absl::flat_hash_map<uint64_t, size_t> index_;               // by payload; never iterated
  std::vector<Known> known_;
  std::vector<PayloadId> payloads_;  // of known_
  std::map<std::pair<StepId, Revision>, std::vector<PayloadId>> plans_;
  std::vector<std::pair<ShardId, PayloadId>> taken_back_;  // since the last scan
  std::map<std::pair<ShardId, SourceId>, Sums> sums_;
};

}  // namespace

std::unique_ptr<Invariant> MakeAccounting(Checker* checker) {
  return std::make_unique<Accounting>(checker);
}

}  // namespace forebay::simulation
