// A trainer job: one process for each data-parallel rank, which attach, open steps, fetch, write
// columns, commit and publish. Jobs crash and are replaced; a replaced job that does not know it
// goes on as a zombie.
//
// Not thread-safe. It outlives the events that it asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "tests/simulation/world.h"

namespace forebay::simulation {

// What a trainer sees of a step by OpenStep.
struct OpenView {
  absl::Status status;
  ledger::StepState state = ledger::StepState::kOpen;
  Revision revision;
  size_t rollouts = 0;
  std::vector<uint32_t> micro_batches;  // of each rank, by mini-batch
};

// To one of the steps before `from`, mostly one that can be gone back to.
ledger::Rewind RandomRewind(World& world, StepId from, Generation generation);

class Job {
 public:
  // `ended` is told when the job is over: it crashed, or was replaced.
  Job(World* world, uint64_t number, uint32_t ranks, std::function<void(Job*)> crashed);

  void Start() { Attach(); }
  // Its successor is there; it may not know.
  void Replaced() { zombie_ = true; }
  // It ends here, without a word.
  void Stop() { alive_ = false; }
  bool alive() const { return alive_; }
  uint32_t ranks() const { return static_cast<uint32_t>(processes_.size()); }
  uint64_t committed() const { return committed_; }

 private:
  void Attach();
  void Attached();
  void AttachedAt(uint32_t rank, const ledger::AttachReply& reply);
  void PublishThen(std::function<void()> then);
  void Announce(ledger::VersionPhase phase, std::function<void()> then);
  void Open(StepId step);
  void TakeOpened(StepId step, const OpenView& view);
  void PutAdvantages(const OpenView& view);
  void FetchAll(const OpenView& view);
  void FetchOne(uint32_t rank, std::vector<ledger::MicroBatchRef> refs, size_t next);
  void WriteThen(uint32_t rank, const ledger::MicroBatchRef& ref, uint64_t tokens,
                 std::function<void()> then);
  void RankDone();
  void Commit();
  void TakeCommitted(const ledger::CommitReply& reply);
  void AfterCommit(StepId committed);
  void CheckpointThen(StepId step, std::function<void()> then);
  void GoBack(StepId from);
  void Abort();
  // A refusal: what is over is over, all else is tried again from the beginning.
  void Refused(const absl::Status& status);
  bool CrashNow();
  void RankCrashed();
  ledger::StepSpec SpecOf(StepId step) const;
  bool AllSourcesKnown() const;
  Generation generation() const { return generation_; }

  // Asks the ledger, and goes on with the answer if the job still lives and was not interrupted
  // meanwhile.
  template <class R>
  void Ask(ledger::Command command, std::function<void(R)> then) {
    if (zombie_) world_.stats.Count(Fault::kZombieCall);
    world_.network.Call<R>(
        [this, command](Answer<R> answer) { world_.node.AskLedger<R>(command, std::move(answer)); },
        [this, turn = turn_, then = std::move(then)](std::optional<R> reply) {
          if (!alive_ || turn != turn_) return world_.queue.Idle();
          if (!reply) return Attach();
          then(std::move(*reply));
        });
  }
  template <class F>
  void Later(uint64_t after_ms, F work) {
    world_.queue.After(after_ms, [this, turn = turn_, work = std::move(work)] {
      if (!alive_ || turn != turn_) return world_.queue.Idle();
      work();
    });
  }

  World& world_;
  const uint64_t number_;
  const std::function<void(Job*)> crashed_;
  bool alive_ = true;
  bool zombie_ = false;
  uint64_t turn_ =
      0;  // rises with each interruption: what was asked before is of no interest any more
  ledger::Mesh mesh_;
  std::vector<uint64_t> processes_;
  std::vector<Generation> attached_;
  Generation generation_;
  StepId step_;
  Revision revision_;
  PolicyVersion version_;  // that the last commit made
  uint32_t ranks_left_ = 0;
  bool takes_all_ = false;  // sequences over the budget too, after a step could not be packed
  uint64_t committed_ = 0;
};

}  // namespace forebay::simulation
