// How much the account of drift takes and keeps.
//
// Constants; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::drift {

// Of one report.
inline constexpr size_t kPartsMax = 65'536;  // of one kind
inline constexpr size_t kEngineNameBytesMax = 256;
inline constexpr double kTokensMax = 9007199254740992.0;  // 2^53: doubles count them exactly

// Of the state.
inline constexpr uint32_t kLagsKept = 16;       // the last one counts all above
inline constexpr size_t kEnginesKept = 4096;    // the one that was silent longest makes room
inline constexpr uint32_t kLengthBuckets = 33;  // by powers of two of a sequence's tokens
inline constexpr size_t kStepsRemembered = 2;   // committed ones whose reports may come again

// What a sum keeps of itself at each committed step that was reported: half of it is of the last
// seven.
inline constexpr double kKeptPerStep = 0.9;
// The largest |d| is that of the last 16 to 32 of these.
inline constexpr uint64_t kMaxWindowSteps = 16;

}  // namespace forebay::drift
