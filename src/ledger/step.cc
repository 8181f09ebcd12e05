#include "ledger/step.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace forebay::ledger {
namespace {

uint64_t Over(uint64_t wanted, uint64_t have) { return wanted > have ? wanted - have : 0; }

}  // namespace

uint32_t Step::GroupsAsked() const {
  uint32_t sum = 0;
  for (const GroupRequest& request : requests) sum += request.groups;
  return sum;
}

uint64_t Step::TokensAsked() const {
  uint64_t sum = 0;
  for (const GroupRequest& request : requests) sum += request.tokens;
  return sum;
}

uint64_t Step::GroupsLacking() const {
  return state == StepState::kOpen ? Over(spec.groups, groups.size() + GroupsAsked()) : 0;
}

uint64_t Step::TokensLacking() const {
  return state == StepState::kOpen ? Over(spec.tokens, totals.tokens + TokensAsked()) : 0;
}

bool Step::Has(const MicroBatchRef& ref) const {
  return ref.mini_batch < mini_batches.size() && ref.dp_rank < spec.mesh.dp &&
         ref.micro_batch < mini_batches[ref.mini_batch].micro_batches_per_rank;
}

void Step::Hold(const codec::GroupReport& report) {
  FOREBAY_CHECK(!report.rollouts.empty());
  HeldGroup& group = groups.emplace_back();
  group.group = report.group;
  group.task = report.task;
  group.advantage = report.advantage;
  group.oldest_version = UINT32_MAX;
  group.first_rollout = static_cast<uint32_t>(rollouts.size());
  group.rollout_count = static_cast<uint32_t>(report.rollouts.size());
  for (const codec::RolloutReport& from : report.rollouts) {
    FOREBAY_CHECK(!from.sequences.empty());
    group.oldest_version = std::min(group.oldest_version, from.version);
    const auto index = static_cast<uint32_t>(rollouts.size());
    HeldRollout& to = rollouts.emplace_back();
    to.rollout = from.rollout;
    to.payload = from.payload;
    to.payload_bytes = from.payload_bytes;
    to.reward = from.reward;
    to.advantage = from.advantage;
    to.version = from.version;
    to.lag = from.lag;
    to.mask_below = from.mask_below;
    to.group = static_cast<uint32_t>(groups.size() - 1);
    to.first_sequence = static_cast<uint32_t>(sequences.size());
    to.sequence_count = static_cast<uint32_t>(from.sequences.size());
    for (const codec::SequenceReport& s : from.sequences) {
      sequences.push_back({index, s.tokens, s.prompt_tokens, s.loss_tokens, s.advantage.value_or(0),
                           s.advantage.has_value()});
      to.loss_tokens += s.loss_tokens;
      totals.tokens += s.tokens;
      totals.loss_tokens += s.loss_tokens;
    }
  }
  totals.groups = groups.size();
  totals.rollouts = rollouts.size();
  totals.sequences = sequences.size();
}

void Step::Order() {
  std::vector<uint32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    const auto key = [this](uint32_t i) {
      return std::tuple(groups[i].oldest_version, groups[i].task, groups[i].group);
    };
    return key(a) < key(b);
  });
  Hold(order);
}

void Step::DropGroupsOf(ShardId shard) {
  std::vector<uint32_t> others;
  for (uint32_t i = 0; i < groups.size(); ++i) {
    if (groups[i].group.shard() != shard) others.push_back(i);
  }
  if (others.size() < groups.size()) Hold(others);
}

void Step::Hold(const std::vector<uint32_t>& order) {
  std::vector<HeldGroup> new_groups;
  std::vector<HeldRollout> new_rollouts;
  std::vector<HeldSequence> new_sequences;
  new_groups.reserve(order.size());
  new_rollouts.reserve(rollouts.size());
  new_sequences.reserve(sequences.size());
  totals.tokens = totals.loss_tokens = 0;
  for (uint32_t from : order) {
    HeldGroup group = groups[from];
    const uint32_t first = group.first_rollout;
    group.first_rollout = static_cast<uint32_t>(new_rollouts.size());
    for (uint32_t r = first; r < first + group.rollout_count; ++r) {
      HeldRollout rollout = rollouts[r];
      const uint32_t begin = rollout.first_sequence;
      rollout.group = static_cast<uint32_t>(new_groups.size());
      rollout.first_sequence = static_cast<uint32_t>(new_sequences.size());
      for (uint32_t s = begin; s < begin + rollout.sequence_count; ++s) {
        new_sequences.push_back(sequences[s]);
        new_sequences.back().rollout = static_cast<uint32_t>(new_rollouts.size());
        totals.tokens += sequences[s].tokens;
        totals.loss_tokens += sequences[s].loss_tokens;
      }
      new_rollouts.push_back(rollout);
    }
    new_groups.push_back(group);
  }
  groups = std::move(new_groups);
  rollouts = std::move(new_rollouts);
  sequences = std::move(new_sequences);
  totals.groups = groups.size();
  totals.rollouts = rollouts.size();
  totals.sequences = sequences.size();
}

std::vector<PayloadId> Step::ToFetch() const {
  std::vector<PayloadId> payloads;
  if (state == StepState::kReserved) {
    for (const HeldRollout& rollout : rollouts) payloads.push_back(rollout.payload);
  }
  if (state != StepState::kSealed) return payloads;
  for (uint32_t m = 0; m < mini_batches.size(); ++m) {
    for (uint32_t i = 0; i < mini_batches[m].micro_batches_per_rank; ++i) {
      for (uint32_t rank = 0; rank < spec.mesh.dp; ++rank) {
        AppendToFetch({.dp_rank = rank, .mini_batch = m, .micro_batch = i}, &payloads);
      }
    }
  }
  return payloads;
}

void Step::AppendToFetch(const MicroBatchRef& ref, std::vector<PayloadId>* payloads) const {
  const batch::MicroBatch planned =
      mini_batches[ref.mini_batch].micro_batch(ref.dp_rank, ref.micro_batch);
  for (const uint32_t s : planned.sequences) {
    // A rollout's sequences lie side by side.
    const PayloadId payload = rollouts[sequences[s].rollout].payload;
    if (payloads->empty() || payloads->back() != payload) payloads->push_back(payload);
  }
  const auto columns = written.find(ref);
  if (columns == written.end()) return;
  for (const WrittenColumn& column : columns->second) {
    if (column.payload != PayloadId()) payloads->push_back(column.payload);
  }
}

void Step::DropPlan() {
  // Assigned, not cleared: a committed step is kept for long, and must not keep its plan's memory.
  groups = {};
  rollouts = {};
  sequences = {};
  for (PlannedMiniBatch& mini_batch : mini_batches) {
    mini_batch.sequences = {};
    mini_batch.begin = {};
    mini_batch.tokens = {};
    mini_batch.padded_tokens = {};
  }
}

void Step::Clear(std::vector<PayloadId>* dead_payloads) {
  for (const auto& [ref, columns] : written) {
    for (const WrittenColumn& column : columns) {
      if (column.payload != PayloadId()) dead_payloads->push_back(column.payload);
    }
  }
  written.clear();
  DropPlan();
  requests = {};
  mini_batches = {};
  filler_micro_batches = 0;
  totals = {};
  rollouts_by_lag = {};
  reward_mean = 0;
  plan_hash = 0;
  payload_bytes = 0;
  retained = false;
  served_again = false;
}

}  // namespace forebay::ledger
