// Whether machines that were recovered fit together.
//
// A pure function.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ledger/state.h"
#include "shard/state.h"

namespace forebay::node {

// What one machine knows of another was committed there first, so it is there, or was lost:
// DataLoss names the machine that lacks it, and what to do. `shards`: all of them, by number.
absl::Status CheckLedger(const ledger::State& ledger, const shard::State& shard);
absl::Status CheckShard(const ledger::State& ledger, const shard::State& shard);
// Both, of all shards.
absl::Status CheckRecovered(const ledger::State& ledger,
                            absl::Span<const shard::State* const> shards);

}  // namespace forebay::node
