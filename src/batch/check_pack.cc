#include "batch/check_pack.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::batch {
namespace {

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckSpec(const PackSpec& spec) {
  if (spec.dp == 0) return Refuse("dp: 0, at least 1");
  if (spec.micro_batches_multiple_of == 0) {
    return Refuse("micro_batches_multiple_of: 0, at least 1");
  }
  if (spec.mini_batches == 0) return Refuse("mini_batches: 0, at least 1");
  if (spec.token_budget == 0 || spec.token_budget > kMaxTokens) {
    return Refuse("token_budget: ", spec.token_budget, ", from 1 to ", kMaxTokens);
  }
  if (spec.pad_multiple == 0 || spec.pad_multiple > spec.token_budget) {
    return Refuse("pad_multiple: ", spec.pad_multiple, ", from 1 to the token_budget of ",
                  spec.token_budget);
  }
  const auto smallest =
      static_cast<unsigned __int128>(spec.dp) * spec.micro_batches_multiple_of * spec.mini_batches;
  if (smallest > kMaxMicroBatches) {
    return Refuse("dp * micro_batches_multiple_of * mini_batches: ", spec.dp, " * ",
                  spec.micro_batches_multiple_of, " * ", spec.mini_batches, ", at most ",
                  kMaxMicroBatches, " micro-batches");
  }
  return CheckCost(spec.cost);
}

// Numbers rise by at most one, and a new group begins with a new rollout.
absl::Status CheckNumbering(absl::Span<const SequenceSize> sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceSize& at = sequences[i];
    if (i == 0) {
      if (at.rollout != 0) return Refuse("sequences[0].rollout: ", at.rollout, ", must be 0");
      if (at.group != 0) return Refuse("sequences[0].group: ", at.group, ", must be 0");
      continue;
    }
    const SequenceSize& before = sequences[i - 1];
    if (at.rollout != before.rollout && at.rollout != before.rollout + 1) {
      return Refuse("sequences[", i, "].rollout: ", at.rollout, ", must be ", before.rollout,
                    " or the next");
    }
    const bool same_rollout = at.rollout == before.rollout;
    if (at.group != before.group && (same_rollout || at.group != before.group + 1)) {
      return Refuse("sequences[", i, "].group: ", at.group, ", must be ", before.group,
                    same_rollout ? " as for the rest of the rollout" : " or the next");
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t Capacity(const PackSpec& spec) {
  return spec.token_budget - spec.token_budget % spec.pad_multiple;
}

absl::Status CheckPack(absl::Span<const SequenceSize> sequences, const PackSpec& spec) {
  FOREBAY_RETURN_IF_ERROR(CheckSpec(spec));
  if (sequences.empty() || sequences.size() > kMaxSequences) {
    return Refuse("sequences: ", sequences.size(), ", from 1 to ", kMaxSequences);
  }
  FOREBAY_RETURN_IF_ERROR(CheckNumbering(sequences));
  const uint64_t longest = spec.refuse_over_budget ? Capacity(spec) : kMaxTokens;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const uint32_t tokens = sequences[i].tokens;
    if (tokens == 0) return Refuse("sequences[", i, "].tokens: 0, at least 1");
    if (tokens > longest) {
      return Refuse(
          "sequences[", i, "].tokens: ", tokens, ", at most ", longest,
          spec.refuse_over_budget ? " (token_budget, whole multiples of pad_multiple)" : "");
    }
  }
  const SequenceSize& last = sequences.back();
  const uint64_t units = uint64_t{spec.groups_whole ? last.group : last.rollout} + 1;
  if (spec.mini_batches > units) {
    return Refuse("mini_batches: ", spec.mini_batches, ", at most the ", units,
                  spec.groups_whole ? " groups" : " rollouts");
  }
  return absl::OkStatus();
}

}  // namespace forebay::batch
