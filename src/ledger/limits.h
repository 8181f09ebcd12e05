// How much the ledger takes and keeps. Each bound that a request can run into has its name here.
//
// Constants; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/peer_messages.h"

namespace forebay::ledger {

// Of one request.
inline constexpr uint32_t kMeshMax = 65'536;  // dp, and tp * pp * cp
inline constexpr uint32_t kGroupsPerStepMax = 1'000'000;
inline constexpr uint64_t kTokensPerStepMax = uint64_t{1} << 40;
inline constexpr uint32_t kMaxLagMax = 1'000'000;
inline constexpr uint32_t kMiniBatchesMax = 4096;
inline constexpr size_t kNameBytesMax = 256;  // of trainers and engines
inline constexpr size_t kReasonBytesMax = 1024;
inline constexpr size_t kWhereBytesMax = 4096;
inline constexpr size_t kChecksumBytesMax = 256;
inline constexpr size_t kColumnNameBytesMax = 64;
inline constexpr size_t kColumnDimensionsMax = 4;

// Of a source's settings.
inline constexpr size_t kSourceNameBytesMax = 128;
inline constexpr size_t kSamplingBytesMax = 64 * 1024;
inline constexpr uint32_t kGroupSizeMax = 4096;
inline constexpr uint32_t kAttemptsPerTaskMax = 65'536;
inline constexpr size_t kRewardsMax = 8;
inline constexpr size_t kRequiredColumnsMax = 64;
inline constexpr uint64_t kDurationMsMax = uint64_t{30} * 24 * 3600 * 1000;

// Of the state.
inline constexpr uint32_t kShardsMax = 256;  // ShardId has 8 bits
inline constexpr size_t kSourcesMax = 1024;
inline constexpr uint32_t kOpenStepsMax = 64;
inline constexpr size_t kWrittenColumnsMax = 32;                       // by micro-batch
inline constexpr size_t kCommittedStepsKept = codec::kRewindStepsMax;  // summaries
// In committed steps that keep their plans and payloads: under 300 bytes each here and in the
// shard.
inline constexpr uint64_t kRetainedRolloutsMax = 1'000'000;
inline constexpr size_t kRewindsRemembered = 64;  // request ids
inline constexpr size_t kAnnouncementsKept = 256;
inline constexpr size_t kEnginesKept = 16'384;         // adoption reports
inline constexpr size_t kDisplacedKept = 1024;         // processes that lost their place
inline constexpr size_t kLagBucketsMax = 256;          // the last one counts all above
inline constexpr size_t kUnacknowledgedMax = 100'000;  // messages to one shard

// Of the volatile half.
inline constexpr uint64_t kLateWaitMs = 60'000;  // that a step waits for stale attempts
// Without an answer, until a shard is taken for absent, unless something else is configured.
inline constexpr uint64_t kAbsentAfterMs = 10'000;
// Between two times that a full store makes committed steps let payloads go: until their files are
// removed, and a write was tried again.
inline constexpr uint64_t kTrimPauseMs = 8'000;

}  // namespace forebay::ledger
