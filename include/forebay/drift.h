// How far the trainer is from the engines, as a trainer reports it: sums over loss tokens.
//
// With d = log p_target - log p_sampler of a token, clamped to +-20: k1 = -d, k2 = d^2 / 2 and
// k3 = e^d - 1 - d estimate KL(sampler || target). Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace forebay::client {

// Loss tokens of one sequence that have a lag and an engine in common.
struct DriftPart {
  uint32_t sequence = 0;  // index in the micro-batch
  uint32_t lag = 0;       // training version less the tokens'; 0 in `reference`
  uint32_t engine = 0;    // index into engine_names; 0 in `reference`
  uint64_t tokens = 0;    // with a finite d
  double k1 = 0;          // sums over these
  double k2 = 0;
  double k3 = 0;
  float max_abs = 0;        // largest |d|, before it was clamped
  uint64_t non_finite = 0;  // tokens besides, whose d is not finite
  uint64_t clamped = 0;     // of `tokens`
};

struct DriftReport {
  std::vector<std::string> engine_names;
  std::vector<DriftPart> engine;     // sampler: the engine; target: the trainer
  std::vector<DriftPart> reference;  // sampler: the trainer; target: the reference policy
};

// What a trainer has computed for the tokens of a micro-batch; rows of padding may follow.
struct TokenLogprobs {
  absl::Span<const float> trainer;
  absl::Span<const float> reference;  // may be empty
  // Row t is of token t + 1 of its sequence, and so is loss_mask: FetchSpec::predicting_mask.
  bool predicting = false;
};

}  // namespace forebay::client
