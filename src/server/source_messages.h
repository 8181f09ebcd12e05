// SourceSettings between the wire and the core.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "codec/source_settings.h"
#include "forebay/v1/types.pb.h"

namespace forebay::server {

// Fills in the defaults that types.proto states, and refuses enumerators that it does not have.
// Ranges are the ledger's to check.
absl::StatusOr<codec::SourceSettings> FromWire(const v1::SourceSettings& settings);
void ToWire(const codec::SourceSettings& settings, v1::SourceSettings* out);
// Copies the named fields of `from` over those of `to`; InvalidArgument for a name that is no
// field.
absl::Status MergeFields(const v1::SourceSettings& from, const std::vector<std::string>& fields,
                         v1::SourceSettings* to);

}  // namespace forebay::server
