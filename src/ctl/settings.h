// Settings of a source from the command line: "group_size=16", "lease.max_ms=60000",
// "rewards.format=0.2".
//
// Names are those of SourceSettings in the contract, nested ones with a dot; any field is reached
// without code of its own. Pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "forebay/v1/types.pb.h"

namespace forebay::ctl {

// Writes each assignment into the settings and notes the top-level fields that were named. Lists
// take commas; enums the lower-case name without prefix; an empty value sets the default.
absl::Status ApplySettings(const std::vector<std::string>& assignments,
                           v1::SourceSettings* settings, std::set<std::string>* fields);

}  // namespace forebay::ctl
