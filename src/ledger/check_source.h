// What the settings of a source must be.
//
// Pure function; safe from any thread.
#pragma once

#include "absl/status/status.h"
#include "codec/source_settings.h"

namespace forebay::ledger {

// InvalidArgument that names field, value and limit, or OK.
absl::Status CheckSettings(const codec::SourceSettings& settings);

}  // namespace forebay::ledger
