// Packs a step's sequences into mini-batches, ranks and micro-batches, from their lengths alone.
//
// Pure: the same input gives the same plan on every machine; ties go to the lower index. Safe from
// any thread. The order of the input matters: a rollout's sequences are adjacent and a group's
// rollouts are adjacent, numbered densely from 0. Anything else is refused with the field, the
// value and the limit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "batch/cost.h"

namespace forebay::batch {

// cu_seqlens is int32, so neither a sequence nor a budget is longer.
inline constexpr uint64_t kMaxTokens = (uint64_t{1} << 31) - 1;
inline constexpr uint64_t kMaxSequences = (uint64_t{1} << 23) - 1;
// Of dp * micro_batches_multiple_of * mini_batches, the smallest plan a spec can ask for: a plan is
// made at one go, and all else waits for it.
inline constexpr uint64_t kMaxMicroBatches = (uint64_t{1} << 19) - 1;

struct SequenceSize {
  uint32_t tokens = 0;
  uint32_t rollout = 0;
  uint32_t group = 0;
};

struct PackSpec {
  uint32_t dp = 1;                         // data-parallel ranks
  uint32_t micro_batches_multiple_of = 1;  // of each rank's micro-batches in a mini-batch
  uint64_t token_budget = 0;               // of a micro-batch, padding included
  uint32_t mini_batches = 1;               // optimizer steps in the step
  bool groups_whole = false;               // a group's rollouts share a mini-batch
  bool refuse_over_budget = false;         // else a sequence over the budget goes alone
  uint32_t pad_multiple = 1;               // a micro-batch's tokens are padded up to a multiple
  Cost cost;
};

// What one rank runs at once, as a view into its mini-batch.
struct MicroBatch {
  absl::Span<const uint32_t> sequences;  // indexes of the input, ascending: the slots in order
  uint64_t tokens = 0;                   // without padding
  uint64_t padded_tokens = 0;            // what counts against the budget
  bool filler() const { return sequences.empty(); }  // zero-loss, so that ranks keep step
};

// One optimizer step: every rank has the same number of micro-batches. A rank's micro-batches run
// from the costly to the cheap, fillers last, so that the i-th ones of all ranks are alike.
struct MiniBatch {
  uint32_t micro_batches_per_rank = 0;
  // Micro-batch m = rank * micro_batches_per_rank + i holds sequences[begin[m] .. begin[m + 1]).
  std::vector<uint32_t> sequences;
  std::vector<uint32_t> begin;
  std::vector<uint64_t> tokens;         // by micro-batch
  std::vector<uint64_t> padded_tokens;  // by micro-batch

  uint32_t micro_batch_count() const { return static_cast<uint32_t>(tokens.size()); }
  MicroBatch micro_batch(uint32_t m) const {
    return {absl::MakeConstSpan(sequences).subspan(begin[m], begin[m + 1] - begin[m]), tokens[m],
            padded_tokens[m]};
  }
  MicroBatch micro_batch(uint32_t rank, uint32_t i) const {
    return micro_batch(rank * micro_batches_per_rank + i);
  }
};

struct Plan {
  std::vector<MiniBatch> mini_batches;
  uint64_t filler_micro_batches = 0;
};

// Every sequence is in exactly one micro-batch. Mini-batches differ by at most one in rollouts
// (or groups), and are close in cost. Within one, a rank's number of micro-batches is the smallest
// that packing finds; a larger one is taken where it levels the ranks' costs by over 1%. A rank is
// left without a sequence only if there are fewer sequences than ranks; a micro-batch only if
// sequences are short of micro-batches, or one more would make the heaviest rank heavier by 1/256.
//
// InvalidArgument, naming field, value and limit, for a malformed input or spec, and for a sequence
// over the budget with refuse_over_budget.
absl::StatusOr<Plan> Pack(absl::Span<const SequenceSize> sequences, const PackSpec& spec);

// How good a plan is. Sums are in integers, so the figures are the same everywhere.
struct PlanQuality {
  double imbalance = 0;             // heaviest rank / mean rank - 1, of the worst mini-batch
  double mini_batch_imbalance = 0;  // heaviest mini-batch / mean mini-batch - 1
  double fill = 0;        // fewest micro-batches any plan could have / micro-batches; 1 is optimal
  double token_fill = 0;  // tokens / room of all micro-batches
};

// For a plan that Pack made of the same sequences and spec.
PlanQuality Measure(absl::Span<const SequenceSize> sequences, const PackSpec& spec,
                    const Plan& plan);

// A lower bound on the bins of `capacity` that hold `sizes` (descending, none above it): the bound
// L2 of Martello and Toth, 1990.
uint64_t FewestBins(absl::Span<const uint32_t> sizes, uint32_t capacity);

}  // namespace forebay::batch
