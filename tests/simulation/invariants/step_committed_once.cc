// 5. A step is committed at most once per branch, in order, under one revision and one generation;
// a re-fetched micro-batch is the same bytes.
//
// The model: the newest generation and, by step, the newest revision that were seen; by (step,
// revision) the plan's hash, and by micro-batch the hash of what a fetch was given.
#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

using ledger::MicroBatchRef;
using ledger::MicroBatchView;

uint64_t HashOf(const MicroBatchView& view) {
  uint64_t hash = 0;
  const auto add = [&hash](uint64_t word) { hash = HashCombine(hash, word); };
  for (const ledger::Slot& slot : view.slots) {
    for (const uint64_t word :
         {slot.payload.value, slot.payload_bytes, slot.rollout.value, slot.group.value,
          slot.task.value, uint64_t{slot.sequence}, uint64_t{slot.sequence_count},
          uint64_t{slot.tokens}, uint64_t{slot.prompt_tokens}, uint64_t{slot.loss_tokens},
          uint64_t{slot.rollout_loss_tokens}, uint64_t{std::bit_cast<uint32_t>(slot.reward)},
          uint64_t{std::bit_cast<uint32_t>(slot.advantage)}, uint64_t{slot.version},
          uint64_t{slot.lag}, uint64_t{slot.mask_below}}) {
      add(word);
    }
  }
  for (const uint64_t word :
       {view.tokens, view.padded_tokens, view.mini_batch.loss_tokens, view.mini_batch.tokens,
        view.mini_batch.sequences, view.mini_batch.rollouts, view.mini_batch.groups,
        uint64_t{view.mini_batch.dp}}) {
    add(word);
  }
  return hash;
}

class StepCommittedOnce final : public Invariant {
 public:
  explicit StepCommittedOnce(Checker* checker)
      : Invariant("5 a step is committed once, its plan stands", checker) {}

  void OnStepChanged(const ledger::Step& step) override {
    Revision& newest = revisions_[step.step];
    if (step.revision < newest)
      Violated(
          absl::StrCat("step ", step.step.value, " goes back to revision ", step.revision.value));
    newest = step.revision;
    if (step.state != ledger::StepState::kSealed) return;
    const auto [plan, first] = plans_.try_emplace({step.step, step.revision}, step.plan_hash);
    if (!first && plan->second != step.plan_hash) {
      Violated(absl::StrCat("step ", step.step.value, " revision ", step.revision.value,
                            " has a second plan"));
    }
  }

  void OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) override {
    const absl::Status status = std::visit([](const auto& r) { return r.status; }, reply);
    if (!status.ok()) return;
    if (const auto* rewind = std::get_if<ledger::Rewind>(&command)) {
      if (!rewinds_.insert(rewind->request_id).second) return;  // the first answer again
      return OnRewound(*rewind, std::get<ledger::RewindReply>(reply));
    }
    if (const auto* attached = std::get_if<ledger::AttachReply>(&reply)) {
      if (attached->generation < newest_) Violated("generations go back");
      newest_ = std::max(newest_, attached->generation);
      return;
    }
    const std::optional<Generation> generation = GenerationOf(command);
    if (generation && *generation != newest_) {
      return Violated(absl::StrCat("a call of generation ", generation->value, " is obeyed, and ",
                                   newest_.value, " began"));
    }
    if (const auto* open = std::get_if<ledger::OpenStep>(&command)) {
      if (const ledger::Step* step = node().ledger().step(open->step)) OnStepChanged(*step);
    } else if (const auto* commit = std::get_if<ledger::CommitStep>(&command)) {
      OnCommitted(*commit, std::get<ledger::CommitReply>(reply));
    } else if (const auto* covered = std::get_if<ledger::CheckpointStep>(&command)) {
      if (covered->step >= next_) Violated("a checkpoint of a step that is not committed");
      checkpoint_ = std::max(checkpoint_, covered->step);
    } else if (const auto* put = std::get_if<ledger::PutColumns>(&command)) {
      for (const ledger::WrittenColumn& column : put->columns) {
        written_[{put->step, put->revision, put->micro_batch}][column.name] = column.payload;
      }
    }
  }

  void OnFetched(Generation generation, StepId step, Revision revision, const MicroBatchRef& ref,
                 const absl::StatusOr<MicroBatchView>& view) override {
    if (!view.ok()) return;
    const auto wrong = [&](const char* what) {
      Violated(absl::StrCat("step ", step.value, " revision ", revision.value, " micro-batch ",
                            ref.dp_rank, "/", ref.mini_batch, "/", ref.micro_batch, ": ", what));
    };
    if (generation != newest_) return wrong("fetched by an old generation");
    if (step < next_) return wrong("fetched after its commit");
    if (revision != revisions_[step]) return wrong("fetched under an old revision");
    const Key key{step, revision, ref};
    const auto [fetched, first] = fetched_.try_emplace(key, HashOf(*view));
    if (!first && fetched->second != HashOf(*view)) return wrong("other bytes than before");
    const auto written = written_.find(key);
    if (view->written.size() != (written == written_.end() ? 0 : written->second.size())) {
      return wrong("columns that were written are missing, or others are there");
    }
    for (const ledger::WrittenColumn& column : view->written) {
      if (written->second[column.name] != column.payload)
        return wrong("another column than was written last");
    }
  }

 private:
  using Key = std::tuple<StepId, Revision, MicroBatchRef>;

  static std::optional<Generation> GenerationOf(const ledger::Command& command) {
    return std::visit(
        [](const auto& c) -> std::optional<Generation> {
          if constexpr (requires { c.generation; }) return c.generation;
          return std::nullopt;
        },
        command);
  }

  void OnCommitted(const ledger::CommitStep& commit, const ledger::CommitReply& reply) {
    const auto wrong = [&](const char* what) {
      Violated(absl::StrCat("step ", commit.step.value, " revision ", commit.revision.value, ": ",
                            what));
    };
    if (reply.already_committed) {
      const auto found = committed_.find(commit.step);
      if (found == committed_.end() || found->second != commit.revision)
        wrong("it was never committed so");
      return;
    }
    if (commit.step != next_) return wrong("committed out of order, or twice");
    if (commit.revision != revisions_[commit.step]) return wrong("committed under an old revision");
    if (!plans_.contains({commit.step, commit.revision})) return wrong("committed without a plan");
    if (reply.next_version <= version_) wrong("its commit makes no new version");
    version_ = reply.next_version;
    committed_[commit.step] = commit.revision;
    next_ = StepId(commit.step.value + 1);
    Forget(commit.step);
  }

  // Commits go on from there, on a new branch, under a new generation.
  void OnRewound(const ledger::Rewind& rewind, const ledger::RewindReply& reply) {
    if (rewind.generation != Generation() && rewind.generation != newest_)
      return Violated(absl::StrCat("a rewind of generation ", rewind.generation.value));
    if (rewind.step >= next_ || reply.next_step != StepId(rewind.step.value + 1))
      return Violated(
          absl::StrCat("a rewind to step ", rewind.step.value, " of ", next_.value - 1));
    if (rewind.step < checkpoint_) {
      return Violated(absl::StrCat("a rewind to step ", rewind.step.value, ", below checkpoint ",
                                   checkpoint_.value));
    }
    if (reply.train_version.branch <= version_.branch) return Violated("no new branch begins");
    if (!rewind.replay && reply.served_again > 0) return Violated("a fresh rewind serves again");
    if (rewind.replay && reply.served_again < reply.taken_back)
      return Violated("a replay leaves a step out");
    next_ = reply.next_step;
    version_ = reply.train_version;
    if (newest_ != Generation()) newest_ = Generation(newest_.value + 1);
    committed_.erase(committed_.upper_bound(rewind.step), committed_.end());
    written_.erase(written_.lower_bound({next_, Revision(), MicroBatchRef()}), written_.end());
  }

  // Plans stay as long as a rewind may serve them again; what was written goes with the commit.
  void Forget(StepId step) {
    const StepId oldest(step.value - std::min<uint64_t>(step.value, codec::kRewindStepsMax));
    plans_.erase(plans_.begin(), plans_.lower_bound({oldest, Revision()}));
    fetched_.erase(fetched_.begin(), fetched_.lower_bound({oldest, Revision(), MicroBatchRef()}));
    const StepId next(step.value + 1);
    written_.erase(written_.begin(), written_.lower_bound({next, Revision(), MicroBatchRef()}));
  }

  Generation newest_;
  StepId next_{1};
  StepId checkpoint_;
  std::set<uint64_t> rewinds_;  // that were answered, by request id
  PolicyVersion version_;
  std::map<StepId, Revision> revisions_;
  std::map<StepId, Revision> committed_;
  std::map<std::pair<StepId, Revision>, uint64_t> plans_;
  std::map<Key, uint64_t> fetched_;
  std::map<Key, std::map<std::string, PayloadId>> written_;
};

}  // namespace

std::unique_ptr<Invariant> MakeStepCommittedOnce(Checker* checker) {
  return std::make_unique<StepCommittedOnce>(checker);
}

}  // namespace forebay::simulation
