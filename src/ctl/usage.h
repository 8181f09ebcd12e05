// What is wrong with the command line itself, found when the command already runs: the exit code is
// kExitUsage, as for what the parser finds.
//
// Pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace forebay::ctl {

inline constexpr char kUsageMark[] = "forebay.usage";

inline absl::Status UsageError(std::string_view what) {
  absl::Status status = absl::InvalidArgumentError(absl::string_view(what.data(), what.size()));
  status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

inline bool IsUsageError(const absl::Status& status) {
  return status.GetPayload(kUsageMark).has_value();
}

}  // namespace forebay::ctl
