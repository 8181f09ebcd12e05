// What a mesh and the spec of a step must be, and how two specs differ.
//
// Pure functions; safe from any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "ledger/messages.h"

namespace forebay::ledger {

// All three: InvalidArgument that names field, value and limit, or OK.
absl::Status CheckMesh(const Mesh& mesh);
absl::Status CheckPacking(const StepSpec& spec);
absl::Status CheckSelection(const StepSpec& spec);

// The spec with its sources sorted, each once.
StepSpec Normalized(const StepSpec& spec);

// "groups: 32, not 64", of the first field that differs: first among those that say which groups
// the step takes, then among those that say how it is packed. nullopt if they are equal.
std::optional<std::string> SelectionDifference(const StepSpec& asked, const StepSpec& held);
std::optional<std::string> PackingDifference(const StepSpec& asked, const StepSpec& held);

}  // namespace forebay::ledger
