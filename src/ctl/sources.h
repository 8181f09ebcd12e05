// What commands share that look up or change a source.
//
// One thread; free functions over the context's client.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/command.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {

// The source's state, or nothing if there is none of that name.
absl::StatusOr<std::optional<v1::SourceState>> FindSource(const Context& context,
                                                          const std::string& name);

// Creates the source (`create`) or changes the settings that `assignments` name, and only those.
// The same again changes nothing.
absl::StatusOr<v1::PutSourceResponse> PutSource(const Context& context, const std::string& name,
                                                const std::vector<std::string>& assignments,
                                                bool create);

}  // namespace forebay::ctl
