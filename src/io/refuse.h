// What every disk refuses before it touches a file.
//
// Pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "io/disk.h"

namespace forebay::io {

// Too many pieces; memory, offset or sizes that do not fit a file opened for direct access; an end
// beyond what a file can have. Ok otherwise.
absl::Status RefuseWrite(const File& file, uint64_t offset, absl::Span<const ConstBuffer> pieces);
absl::Status RefuseRead(const File& file, uint64_t offset,
                        absl::Span<const absl::Span<char>> pieces);
// For Allocate and Truncate.
absl::Status RefuseLength(std::string_view operation, const File& file, uint64_t bytes);

}  // namespace forebay::io
