// The bytes that stand for rows which a rollout does not have.
//
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace forebay::server {

// `size` bytes of the dtype's values that stand for a missing one; `size` is a multiple of theirs.
std::string MissingFill(uint32_t dtype, double missing, size_t size);

// FailedPrecondition, naming the column, of a missing value that the dtype cannot say.
absl::Status CheckMissing(std::string_view column, uint32_t dtype, double missing);

}  // namespace forebay::server
