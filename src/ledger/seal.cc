// What the seal of a step fixes: advantages, packing, totals, and the hash of all that.
#include <bit>
#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"
#include "ledger/limits.h"
#include "ledger/plan.h"
#include "ledger/state.h"

namespace forebay::ledger {
namespace {

Totals TotalsOf(const Step& step, const batch::MiniBatch& mini_batch, uint32_t dp, uint32_t number,
                std::vector<uint32_t>& group_seen) {
  Totals totals;
  totals.dp = dp;
  totals.sequences = mini_batch.sequences.size();
  for (uint32_t s : mini_batch.sequences) {
    const HeldSequence& sequence = step.sequences[s];
    totals.tokens += sequence.tokens;
    totals.loss_tokens += sequence.loss_tokens;
    const HeldRollout& rollout = step.rollouts[sequence.rollout];
    if (s == rollout.first_sequence) ++totals.rollouts;
    if (group_seen[rollout.group] != number) {
      group_seen[rollout.group] = number;
      ++totals.groups;
    }
  }
  return totals;
}

class PlanHasher {
 public:
  void Add(uint64_t word) { hash_ = HashCombine(hash_, word); }
  void AddFloat(float a, float b) {
    Add(uint64_t{std::bit_cast<uint32_t>(a)} << 32 | std::bit_cast<uint32_t>(b));
  }
  void AddPair(uint32_t a, uint32_t b) { Add(uint64_t{a} << 32 | b); }
  void AddTotals(const Totals& t) {
    for (uint64_t v :
         {t.loss_tokens, t.tokens, t.sequences, t.rollouts, t.groups, uint64_t{t.dp}}) {
      Add(v);
    }
  }
  uint64_t hash() const { return Mix64(hash_); }

 private:
  uint64_t hash_ = 0;
};

// Over everything that a trainer sees but payload places and the revision: two runs whose steps
// hold the same attempts with the same results have the same hashes.
uint64_t HashPlan(const Step& step) {
  PlanHasher hasher;
  hasher.AddPair(step.train_version.branch, step.train_version.number);
  hasher.AddPair(step.next_version.branch, step.next_version.number);
  for (const HeldGroup& group : step.groups) {
    hasher.Add(group.group.value);
    hasher.Add(group.task.value);
    hasher.Add(group.rollout_count);
  }
  for (const HeldRollout& rollout : step.rollouts) {
    hasher.Add(rollout.rollout.value);
    hasher.AddFloat(rollout.reward, rollout.advantage);
    hasher.AddPair(rollout.version, rollout.lag);
    hasher.AddPair(rollout.mask_below, rollout.sequence_count);
  }
  for (const HeldSequence& sequence : step.sequences) {
    hasher.AddPair(sequence.tokens, sequence.prompt_tokens);
    hasher.AddPair(sequence.loss_tokens, std::bit_cast<uint32_t>(sequence.advantage));
  }
  for (const PlannedMiniBatch& mini_batch : step.mini_batches) {
    hasher.Add(mini_batch.micro_batches_per_rank);
    for (uint32_t s : mini_batch.sequences) hasher.Add(s);
    for (uint32_t b : mini_batch.begin) hasher.Add(b);
    for (uint64_t t : mini_batch.padded_tokens) hasher.Add(t);
    hasher.AddTotals(mini_batch.totals);
  }
  hasher.AddTotals(step.totals);
  return hasher.hash();
}

// The batch's own refusal knows sequences by their place in the step alone.
absl::Status OverBudget(const Step& step, const StepSpec& spec) {
  const uint32_t capacity = spec.token_budget - spec.token_budget % spec.pad_multiple;
  const HeldSequence* longest = nullptr;
  uint64_t over = 0;
  for (const HeldSequence& sequence : step.sequences) {
    if (sequence.tokens <= capacity) continue;
    ++over;
    if (longest == nullptr || sequence.tokens > longest->tokens) longest = &sequence;
  }
  if (longest == nullptr) return absl::OkStatus();
  const HeldRollout& rollout = step.rollouts[longest->rollout];
  std::string text =
      absl::StrCat("rollout 0x", absl::Hex(rollout.rollout.value), " of group 0x",
                   absl::Hex(step.groups[rollout.group].group.value), " has a sequence of ",
                   longest->tokens, " tokens, token_budget is ", spec.token_budget);
  if (capacity != spec.token_budget) {
    absl::StrAppend(&text, " (", capacity, " in whole multiples of pad_multiple ",
                    spec.pad_multiple, ")");
  }
  if (over > 1) absl::StrAppend(&text, "; ", over, " sequences of the step are over it");
  return absl::InvalidArgumentError(
      absl::StrCat(text,
                   "; the groups stay ready, so the same spec will fail again: raise "
                   "token_budget, or unset refuse_over_budget to give such a sequence a "
                   "micro-batch of its own"));
}

}  // namespace

absl::StatusOr<PackedStep> PackStep(const Step& step, const StepSpec& spec) {
  if (spec.refuse_over_budget) FOREBAY_RETURN_IF_ERROR(OverBudget(step, spec));
  std::vector<batch::SequenceSize> sizes;
  sizes.reserve(step.sequences.size());
  for (const HeldSequence& sequence : step.sequences) {
    sizes.push_back({sequence.tokens, sequence.rollout, step.rollouts[sequence.rollout].group});
  }
  batch::PackSpec pack;
  pack.dp = spec.mesh.dp;
  pack.micro_batches_multiple_of = spec.mesh.micro_batches_multiple_of;
  pack.token_budget = spec.token_budget;
  pack.mini_batches = spec.mini_batches;
  pack.groups_whole = spec.groups_whole;
  pack.refuse_over_budget = spec.refuse_over_budget;
  pack.pad_multiple = spec.pad_multiple;
  pack.cost = {spec.cost_linear, spec.cost_quadratic, spec.cost_table};
  absl::StatusOr<batch::Plan> plan = batch::Pack(sizes, pack);
  if (!plan.ok()) return plan.status();
  PackedStep packed;
  packed.filler_micro_batches = plan->filler_micro_batches;
  packed.mini_batches.reserve(plan->mini_batches.size());
  std::vector<uint32_t> group_seen(step.groups.size(), UINT32_MAX);
  for (batch::MiniBatch& mini_batch : plan->mini_batches) {
    const auto number = static_cast<uint32_t>(packed.mini_batches.size());
    PlannedMiniBatch& planned = packed.mini_batches.emplace_back();
    planned.totals = TotalsOf(step, mini_batch, spec.mesh.dp, number, group_seen);
    static_cast<batch::MiniBatch&>(planned) = std::move(mini_batch);
  }
  return packed;
}

void NormalizeAdvantages(Step& step) {
  const auto normalized = [&step](const HeldRollout& rollout) {
    return step.groups[rollout.group].advantage == codec::AdvantageKind::kReinforcePp;
  };
  double count = 0, sum = 0, squares = 0;
  for (const HeldRollout& rollout : step.rollouts) {
    if (!normalized(rollout)) continue;
    count += 1;
    sum += rollout.advantage;
  }
  if (count == 0) return;
  const double mean = sum / count;
  for (const HeldRollout& rollout : step.rollouts) {
    if (!normalized(rollout)) continue;
    const double difference = rollout.advantage - mean;
    squares += difference * difference;
  }
  const double deviation = std::sqrt(squares / count);
  for (HeldRollout& rollout : step.rollouts) {
    if (!normalized(rollout)) continue;
    rollout.advantage = static_cast<float>((rollout.advantage - mean) / (deviation + 1e-6));
  }
}

void InheritAdvantages(Step& step) {
  for (HeldSequence& sequence : step.sequences) {
    if (!sequence.own_advantage) sequence.advantage = step.rollouts[sequence.rollout].advantage;
  }
}

void Summarize(Step& step) {
  step.totals.dp = step.spec.mesh.dp;
  step.rollouts_by_lag.clear();
  double rewards = 0;
  for (const HeldRollout& rollout : step.rollouts) {
    const size_t bucket = std::min<size_t>(rollout.lag, kLagBucketsMax - 1);
    if (bucket >= step.rollouts_by_lag.size()) step.rollouts_by_lag.resize(bucket + 1);
    ++step.rollouts_by_lag[bucket];
    rewards += rollout.reward;
  }
  step.reward_mean = rewards / static_cast<double>(step.rollouts.size());
  step.plan_hash = HashPlan(step);
}

void State::SealIfComplete(Step& step, Effects* effects) {
  if (drift_.hold) return;
  // A step with a request on its way would take groups that its plan does not know.
  if (step.state != StepState::kOpen || !step.requests.empty() || step.groups.empty()) return;
  if (step.GroupsLacking() > 0 || step.TokensLacking() > 0) return;
  step.Order();
  if (step.spec.custom_advantages) {
    step.state = StepState::kReserved;
    effects->steps_changed.push_back(step.step);
    return;
  }
  NormalizeAdvantages(step);
  Seal(step, effects);
}

void State::Seal(Step& step, Effects* effects) {
  absl::StatusOr<PackedStep> packed = PackStep(step, step.spec);
  if (!packed.ok()) {
    // The trainer is told, and opens the step anew with a spec that its groups fit.
    ++counters_.steps_unpackable;
    return Abort(step.step, std::string(packed.status().message()), effects);
  }
  InheritAdvantages(step);
  step.mini_batches = std::move(packed->mini_batches);
  step.filler_micro_batches = packed->filler_micro_batches;
  step.state = StepState::kSealed;
  Summarize(step);
  ++counters_.steps_sealed;
  effects->steps_changed.push_back(step.step);
}

}  // namespace forebay::ledger
