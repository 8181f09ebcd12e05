// The limits of what comes in over the wire, by name. Bytes unless the name says otherwise.
//
// Constants; safe from any thread. Which of them a user may lower is the configuration's matter.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::codec {

// An encoded RolloutHeader. It fits one block of the payload store, so that readers find it in one
// piece.
inline constexpr size_t kHeaderBytesMax = size_t{1} << 20;
inline constexpr size_t kSequencesMax = 1024;
inline constexpr size_t kColumnsMax = 256;
inline constexpr size_t kRewardsMax = 64;
// Of a reward, either way; with the weights' limit, sums and their squares stay far from infinity.
inline constexpr double kRewardMax = 1e12;
inline constexpr double kRewardWeightMax = 1e6;
inline constexpr size_t kNameBytesMax = 64;
inline constexpr size_t kInnerDimensionsMax = 4;
inline constexpr size_t kExtraJsonBytesMax = 64 * 1024;
// Tokens of one sequence: positions are i32 in cu_seqlens.
inline constexpr uint32_t kTokensMax = (uint32_t{1} << 31) - 1;
// Header and payload together, whatever is configured.
inline constexpr uint64_t kRolloutBytesMax = uint64_t{16} << 30;
// Rollouts begun in one frame.
inline constexpr size_t kFrameRolloutsMax = 4096;
// Leases named in one request.
inline constexpr size_t kLeasesMax = 65'536;
// Columns named in one fetch, and ranges of one dimension of one of them.
inline constexpr size_t kFetchColumnsMax = 256;
inline constexpr size_t kSliceRangesMax = 256;
// Sources named in one Acquire.
inline constexpr size_t kAcquireSourcesMax = 1024;

}  // namespace forebay::codec
