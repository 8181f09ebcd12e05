// Calls that name leases or attempts: split by the shards that own them, answered as one.
//
// Add...: before the server starts, on one thread. CountOverShards: thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/grpc/method_table.h"
#include "server/services.h"
#include "shard/messages.h"

namespace forebay::server {

// Sends each shard its part of the leases, as the command that `make` builds; answers with the sum
// of the counts, or with the first refusal. InvalidArgument if a lease names a shard that does not
// exist.
void CountOverShards(node::Engine* engine, const std::vector<shard::LeaseRef>& leases,
                     std::function<shard::Command(std::vector<shard::LeaseRef>)> make,
                     std::function<void(absl::StatusOr<uint64_t>)> answer);

void AddRenew(ServiceContext* context, MethodTable* methods);
void AddSetReward(ServiceContext* context, MethodTable* methods);

}  // namespace forebay::server
