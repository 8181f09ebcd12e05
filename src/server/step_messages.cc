#include "server/step_messages.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/policy_messages.h"

namespace forebay::server {

ledger::Mesh FromWire(const v1::Mesh& mesh) {
  // Proto3's zero stands for "not given".
  const auto one_if_zero = [](uint32_t value) { return value == 0 ? 1 : value; };
  return {.dp = one_if_zero(mesh.dp()),
          .tp = one_if_zero(mesh.tp()),
          .pp = one_if_zero(mesh.pp()),
          .cp = one_if_zero(mesh.cp()),
          .micro_batches_multiple_of = one_if_zero(mesh.micro_batches_multiple_of())};
}

absl::StatusOr<ledger::StepSpec> FromWire(const v1::StepSpec& spec,
                                          const CatalogSnapshot& catalog) {
  ledger::StepSpec out{.groups = spec.groups(),
                       .tokens = spec.tokens(),
                       .mesh = FromWire(spec.mesh()),
                       .token_budget = spec.token_budget(),
                       .refuse_over_budget = spec.refuse_over_budget(),
                       .groups_whole = spec.groups_whole(),
                       .custom_advantages = spec.custom_advantages()};
  if (spec.mini_batches() != 0) out.mini_batches = spec.mini_batches();
  if (spec.has_max_lag()) out.max_lag = spec.max_lag();
  if (spec.pad_multiple() != 0) out.pad_multiple = spec.pad_multiple();
  if (spec.cost_linear() != 0 || spec.cost_quadratic() != 0) {
    out.cost_linear = spec.cost_linear();
    out.cost_quadratic = spec.cost_quadratic();
  }
  for (const v1::CostPoint& point : spec.cost_table()) {
    out.cost_table.push_back({point.tokens(), point.cost()});
  }
  for (const auto& name : spec.sources()) {
    const auto* source = catalog.Find(name);
    if (source == nullptr) {
      return absl::NotFoundError(absl::StrCat("spec.sources: '", name, "' is not a source"));
    }
    out.sources.push_back(source->id);
  }
  return out;
}

void ToWire(const ledger::Totals& totals, v1::Totals* out) {
  out->set_loss_tokens(totals.loss_tokens);
  out->set_tokens(totals.tokens);
  out->set_sequences(totals.sequences);
  out->set_rollouts(totals.rollouts);
  out->set_groups(totals.groups);
  out->set_dp(totals.dp);
}

v1::StepState ToWire(ledger::StepState state) { return static_cast<v1::StepState>(state); }

void ToWire(const ledger::Step& step, v1::OpenStepResponse* out) {
  out->set_state(ToWire(step.state));
  out->set_revision(step.revision.value);
  ToWire(step.train_version, out->mutable_train_version());
  ToWire(step.next_version, out->mutable_next_version());
  for (const auto& mini : step.mini_batches) {
    auto* plan = out->add_mini_batches();
    plan->set_micro_batches_per_rank(mini.micro_batches_per_rank);
    ToWire(mini.totals, plan->mutable_totals());
  }
  ToWire(step.totals, out->mutable_totals());
  out->set_plan_hash(step.plan_hash);
  out->set_groups_reserved(static_cast<uint32_t>(step.totals.groups));
  out->set_filler_micro_batches(step.filler_micro_batches);
  for (const uint64_t count : step.rollouts_by_lag) out->add_rollouts_by_lag(count);
  out->set_reward_mean(step.reward_mean);
}

}  // namespace forebay::server
