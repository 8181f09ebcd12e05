// The named limits of a shard.
//
// Plain values.
#pragma once

#include <cstdint>

namespace forebay::shard {

// Closed groups that are remembered, so that a repeated push gets its first answer again: the last
// few seconds of a fast run.
inline constexpr uint32_t kClosedGroupsMax = 16'384;
// Finished groups whose effect on a task's statistics a rewind can undo: 12 MB.
inline constexpr uint32_t kTaughtMax = 262'144;
// Request ids of PutGroup that are remembered.
inline constexpr uint32_t kPutGroupsRemembered = 65'536;
inline constexpr uint32_t kSessionsMax = 65'536;
inline constexpr uint32_t kSessionTextMax = 256;
// Rollouts of committed steps that stay for people to look at: under 15 MB.
inline constexpr uint32_t kKeptMax = 100'000;
// Evaluation runs that are kept, finished ones included.
inline constexpr uint32_t kEvalRunsMax = 256;
inline constexpr uint32_t kAssignmentsMax = 4'096;   // in one answer
inline constexpr uint32_t kSequencesMax = 1'024;     // in one rollout
inline constexpr uint32_t kVersionRunsMax = 65'536;  // in one sequence
// Entries of one command that name tasks, rollouts, leases or rewards.
inline constexpr uint32_t kEntriesMax = 65'536;
inline constexpr uint32_t kFailReasonMax = 1'024;
// Rollouts per version while no trainer has said how many it takes: a large step of the public
// reference shapes.
inline constexpr uint64_t kDefaultRolloutsPerVersion = 4'096;

}  // namespace forebay::shard
