// Names a micro-batch of a step's plan.
//
// Plain value.
#pragma once

#include <compare>
#include <cstdint>

namespace forebay::ledger {

struct MicroBatchRef {
  uint32_t dp_rank = 0;
  uint32_t mini_batch = 0;
  uint32_t micro_batch = 0;
  auto operator<=>(const MicroBatchRef&) const = default;
  template <class A>
  void Fields(A& a) {
    a(dp_rank, mini_batch, micro_batch);
  }
};

}  // namespace forebay::ledger
