// Results of evaluation runs: what each shard knows, added up.
//
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/v1/admin.pb.h"
#include "node/engine.h"

namespace forebay::server {

// An evaluation run over all shards.
struct EvalSum {
  shard::EvalView view;  // sums over the shards; done when all of them are
  uint32_t shards = 0;   // that know the run

  void Add(const shard::EvalView& part);
};

// In order of their first appearance.
class EvalSums {
 public:
  void Add(const shard::EvalView& part);
  const EvalSum* Find(EvalRunId run) const;
  const std::vector<EvalSum>& sums() const { return sums_; }

 private:
  std::vector<EvalSum> sums_;
};

// Done once all of `shards` shards are.
void ToWire(const EvalSum& sum, uint32_t shards, v1::EvalResult* out);

}  // namespace forebay::server
