// What is kept of one task: 64 bytes, one cache line. The payload lies elsewhere, under `content`.
//
// Plain values. Snapshots hold a record's bytes as they are.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/ids.h"

namespace forebay::curriculum {

struct NewTask {
  uint64_t external_hash =
      0;  // Hash64 of the external id; two ids with one hash count as the same id
  uint64_t content_hash = 0;  // of payload, attributes and weight
  PayloadId content;          // external id, payload and attributes, in the task content store
  float weight = 1;           // in a weighted draw; from 0 to kTaskWeightMax
  template <class A>
  void Fields(A& a) {
    a(external_hash, content_hash, content, weight);
  }
};

// Finite weights keep the sum of all weights of a source within 64 bits.
inline constexpr float kTaskWeightMax = 65535;
inline constexpr uint32_t kTasksPerSourceMax = 1u << 31;

struct TaskRecord {
  uint64_t external_hash = 0;
  uint64_t content_hash = 0;
  PayloadId content;
  // Passes and failures of past rollouts, decayed by group: Beta(1 + pass_a, 1 + pass_b).
  float pass_a = 0;
  float pass_b = 0;
  uint32_t rollouts = 0;  // of finished groups
  uint32_t groups = 0;    // finished
  float weight = 1;
  uint32_t last_version = 0;  // number of the policy version of the last finished group
  float mean_tokens = 0;      // of a rollout, decayed by group; 0 before the first
  float mean_duration_ms = 0;
  uint32_t last_epoch =
      0;  // 1 + the epoch in which the task was handed out last (low 32 bits); 0 never
  uint16_t in_flight = 0;  // groups begun and not finished; stays at the maximum once it got there
  uint16_t failures : 15 = 0;  // since the last finished group
  uint16_t quarantined : 1 = 0;

  // Expected share of passes, with a uniform prior.
  float PassRate() const { return (pass_a + 1) / (pass_a + pass_b + 2); }
};
// What finished groups have taught about a task.
struct TaskStatistics {
  float pass_a = 0;
  float pass_b = 0;
  uint32_t rollouts = 0;
  uint32_t groups = 0;
  uint32_t last_version = 0;
  float mean_tokens = 0;
  float mean_duration_ms = 0;
  template <class A>
  void Fields(A& a) {
    a(pass_a, pass_b, rollouts, groups, last_version, mean_tokens, mean_duration_ms);
  }
};

// Whether all of it is finite and not negative.
bool Valid(const TaskStatistics& statistics);

static_assert(sizeof(TaskRecord) == 64, "the memory of a task is promised to users");
static_assert(std::is_trivially_copyable_v<TaskRecord>, "snapshots copy records");

}  // namespace forebay::curriculum
