// What Pack demands of its input.
//
// Pure function; safe from any thread.
#pragma once

#include "batch/pack.h"

namespace forebay::batch {

// InvalidArgument that names field, value and limit, or OK.
absl::Status CheckPack(absl::Span<const SequenceSize> sequences, const PackSpec& spec);

// The tokens a micro-batch can hold without being padded over the budget; 0 if there are none.
uint64_t Capacity(const PackSpec& spec);

}  // namespace forebay::batch
