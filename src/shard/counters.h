// What a shard counts, by source. Every accepted rollout is at each moment exactly one of held,
// reserved, trained, evaluated or dropped with a reason.
//
// Plain values.
#pragma once

#include <array>
#include <cstdint>

#include "base/ids.h"

namespace forebay::shard {

// Why an accepted rollout was not trained.
enum class DropReason : uint8_t {
  kFilteredEqual,   // all rewards of its group are equal
  kFilteredSingle,  // its group's baseline set has one member
  kFilteredLength,  // a rollout of its group is over filter_max_tokens
  kStale,           // over the lag limit
  kTruncated,
  kAborted,
  kNoReward,  // the reward did not come in time
  kLate,      // its group completed without it
  kFailed,    // its task was quarantined, or its attempts gave out
  kBudget,    // payload memory
  kRewound,   // its branch of versions was abandoned
  kShort,     // fewer than two trainable rollouts of its group were left
  kDamaged,   // its payload cannot be read back any more
  kOperator,  // an operator dropped it
};
inline constexpr size_t kDropReasons = 14;

// The name that users see: "filtered_equal", "stale", ...
const char* Name(DropReason reason);

struct SourceCounters {
  // Attempts.
  uint64_t assignments = 0;
  uint64_t expired = 0;
  uint64_t released = 0;
  uint64_t failed = 0;    // reported, or aborted with retry
  uint64_t partials = 0;  // unfinished attempts saved
  // Pushes that were not taken, each attempt once. Those that change nothing (duplicates, old
  // leases, malformed ones) are not counted in the state.
  uint64_t late = 0;   // the group was closed
  uint64_t stale = 0;  // an abandoned branch, or over the lag limit
  // Rollouts: accepted = held + reserved + trained + evaluated + sum of dropped.
  uint64_t accepted = 0;
  uint64_t held = 0;
  uint64_t reserved = 0;
  uint64_t trained = 0;
  uint64_t evaluated = 0;
  std::array<uint64_t, kDropReasons> dropped{};
  uint64_t baseline_only = 0;  // of those dropped as stale: the source keeps them in the baseline
  uint64_t masked = 0;         // reserved with some tokens out of the loss for their age
  // Groups.
  uint64_t groups_begun = 0;
  uint64_t groups_complete = 0;
  uint64_t groups_filtered = 0;
  uint64_t groups_screened_out = 0;  // of those filtered
  uint64_t groups_dropped = 0;
  uint64_t groups_trained = 0;
  uint64_t tasks_quarantined = 0;
  // That had been trained before a rewind; with what is trained these never go down.
  uint64_t groups_taken_back = 0;
  uint64_t taken_back = 0;
  uint64_t tokens_taken_back = 0;
  // Sums for means.
  uint64_t tokens_accepted = 0;
  uint64_t tokens_trained = 0;
  double reward_sum = 0;  // over `rewarded`, in order of completion
  uint64_t rewarded = 0;

  void AddTrained(uint64_t groups, uint64_t rollouts, uint64_t tokens) {
    groups_trained += groups;
    trained += rollouts;
    tokens_trained += tokens;
  }
  void TakeBackTrained(uint64_t groups, uint64_t rollouts, uint64_t tokens) {
    groups_trained -= groups;
    trained -= rollouts;
    tokens_trained -= tokens;
    groups_taken_back += groups;
    taken_back += rollouts;
    tokens_taken_back += tokens;
  }

  template <class A>
  void Fields(A& a) {
    a(assignments, expired, released, failed, partials, late, stale, accepted, held, reserved,
      trained, evaluated);
    for (uint64_t& d : dropped) a(d);
    a(baseline_only, masked, groups_begun, groups_complete, groups_filtered, groups_screened_out,
      groups_dropped, groups_trained, tasks_quarantined, groups_taken_back, taken_back,
      tokens_taken_back, tokens_accepted, tokens_trained, reward_sum, rewarded);
  }
};

}  // namespace forebay::shard
