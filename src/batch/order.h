// Sorting by an integer key in linear time.
//
// Pure function; safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace forebay::batch {

// The indexes of `keys` from the largest key to the smallest; equal keys by index.
// At most 2^32 - 1 keys.
std::vector<uint32_t> OrderDescending(absl::Span<const uint64_t> keys);

}  // namespace forebay::batch
