// What is known of a rollout's sequences without its payload: lengths and policy versions.
//
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "codec/source_settings.h"

namespace forebay::rollout {

enum class RolloutStatus : uint8_t { kFinished, kTruncated, kAborted };

// From token `offset` on the sequence was sampled by `version`, until the next run.
struct VersionRun {
  uint32_t offset = 0;
  PolicyVersion version;
  uint32_t loss_tokens = 0;
  bool operator==(const VersionRun&) const = default;
  template <class A>
  void Fields(A& a) {
    a(offset, version, loss_tokens);
  }
};

struct SequenceMeta {
  uint32_t tokens = 0;
  uint32_t prompt_tokens = 0;
  uint32_t loss_tokens = 0;
  std::optional<float> advantage;
  std::vector<VersionRun> versions;  // empty: the assignment's version
  bool operator==(const SequenceMeta&) const = default;
  template <class A>
  void Fields(A& a) {
    a(tokens, prompt_tokens, loss_tokens, advantage, versions);
  }
};

// The version number that lag counts from, over all runs of all sequences. A sequence without runs
// is of version `assigned`. kMeanToken rounds down, so that a fraction of a version counts as one.
uint32_t VersionByRuns(codec::LagOf lag_of, std::span<const SequenceMeta> sequences,
                       uint32_t assigned);
inline uint32_t VersionBy(codec::LagOf lag_of, std::span<const SequenceMeta> sequences,
                          uint32_t assigned) {
  const bool plain = sequences.size() == 1 && sequences[0].versions.empty();
  return plain ? assigned : VersionByRuns(lag_of, sequences, assigned);
}

// Loss tokens of a sequence that are left when tokens of versions below `mask_below` leave the
// loss.
uint32_t LossTokensFrom(const SequenceMeta& sequence, uint32_t mask_below, uint32_t assigned);

}  // namespace forebay::rollout
