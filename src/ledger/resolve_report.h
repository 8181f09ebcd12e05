// From what a trainer says of the sequences of a micro-batch to what is logged of it.
//
// Pure.
#pragma once

#include "absl/status/status.h"
#include "ledger/drift_commands.h"
#include "ledger/state.h"

namespace forebay::ledger {

// Turns the command's parts into cells, by the lengths and sources of the plan's sequences.
// InvalidArgument names field and limit: a sequence, lag or count that the plan does not have.
absl::Status ResolveReport(const State& state, ReportSequences* command);

}  // namespace forebay::ledger
