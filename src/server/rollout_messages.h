// Rollouts of the state machines as the contract shows them, and which of them a list asks for.
//
// Thread-safe: values, and questions to stores that are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "forebay/v1/admin.pb.h"
#include "node/engine.h"
#include "server/services.h"

namespace forebay::server {

// With the source's name, the task's external id, and the flags that need no look at the store.
void ToWire(const ServiceContext& context, const CatalogSnapshot& catalog,
            const shard::State& state, const shard::RolloutView& view, v1::RolloutState* out);

// Nothing if the shard does not hold it (any more).
std::optional<shard::RolloutView> FindRollout(const shard::State& state, RolloutId rollout);

class RolloutFilter {
 public:
  // Errors name the field.
  static absl::StatusOr<RolloutFilter> Make(const ServiceContext& context,
                                            const CatalogSnapshot& catalog,
                                            const v1::ListRolloutsRequest& request);

  // The next of those among which the list looks, from `*cursor` on; see State::Rollouts.
  std::vector<shard::RolloutView> Next(const shard::State& state, uint64_t* cursor) const;
  bool Matches(const shard::RolloutView& view) const;
  // The list asks for those whose bytes are lost, and this one's are.
  bool Lost(const shard::RolloutView& view) const;

 private:
  bool InState(const shard::RolloutView& view) const;
  bool RewardMatches(const shard::RolloutView& view) const;
  bool FlagMatches(const shard::RolloutView& view) const;

  storage::PayloadStore* payloads_ = nullptr;
  v1::ListRolloutsRequest request_;
  std::optional<SourceId> source_;
  uint32_t flags_ = 0;
};

}  // namespace forebay::server
