// 11, as far as it concerns what is stored. Bytes that cannot be read are never served, and no step
// is committed with a rollout of which they were lost before the plan served it: ranks that had
// them by then may go on.
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/invariants/invariant.h"

namespace forebay::simulation {
namespace {

class DamageNotServed final : public Invariant {
 public:
  explicit DamageNotServed(Checker* checker) : Invariant("11 damage is not served", checker) {}

  void OnFetched(Generation, StepId step, Revision revision, const ledger::MicroBatchRef&,
                 const absl::StatusOr<ledger::MicroBatchView>& view) override {
    if (!view.ok()) return;
    for (const ledger::Slot& slot : view->slots) Serve(step, revision, slot.payload);
    for (const ledger::WrittenColumn& column : view->written) {
      if (column.payload != PayloadId()) Serve(step, revision, column.payload);
    }
  }

  void OnStepChanged(const ledger::Step& step) override {
    if (step.state != ledger::StepState::kSealed) return;
    std::vector<PayloadId>& plan = plans_[{step.step, step.revision}];
    plan.clear();
    for (const ledger::HeldRollout& rollout : step.rollouts) plan.push_back(rollout.payload);
  }

  void OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) override {
    const auto* commit = std::get_if<ledger::CommitStep>(&command);
    if (commit == nullptr) return;
    const auto& answer = std::get<ledger::CommitReply>(reply);
    if (!answer.status.ok() || answer.already_committed) return;
    const std::set<PayloadId>& served = served_[{commit->step, commit->revision}];
    for (const PayloadId payload : plans_[{commit->step, commit->revision}]) {
      if (!node().payloads().Damaged(payload) || served.contains(payload)) continue;
      return Violated(absl::StrCat("step ", commit->step.value, " is committed with payload ",
                                   payload.value, ", which nobody could read"));
    }
    const auto after = std::pair(StepId(commit->step.value + 1), Revision());
    plans_.erase(plans_.begin(), plans_.lower_bound(after));
    served_.erase(served_.begin(), served_.lower_bound(after));
  }

 private:
  void Serve(StepId step, Revision revision, PayloadId payload) {
    if (node().payloads().Damaged(payload)) {
      Violated(absl::StrCat("step ", step.value, " serves payload ", payload.value,
                            ", which is damaged"));
    }
    served_[{step, revision}].insert(payload);
  }

  std::map<std::pair<StepId, Revision>, std::vector<PayloadId>> plans_;
  std::map<std::pair<StepId, Revision>, std::set<PayloadId>> served_;
};

}  // namespace

std::unique_ptr<Invariant> MakeDamageNotServed(Checker* checker) {
  return std::make_unique<DamageNotServed>(checker);
}

}  // namespace forebay::simulation
