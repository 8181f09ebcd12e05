// The largest differencing method for many ranks (Karmarkar and Karp, 1982; as trainers use it to
// balance sequences): the peer of `plan-step`. No token budgets, no micro-batches.
//
// O(items x ranks x log ranks) in time. Safe from any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

#include "absl/types/span.h"

namespace forebay::batch {

// The load of each of `ranks` ranks, in descending order.
inline std::vector<uint64_t> KarmarkarKarp(absl::Span<const uint64_t> costs, uint32_t ranks) {
  // A partial solution: the loads that are above the least one's, descending, less that one.
  struct Partial {
    uint64_t spread = 0;
    uint64_t order = 0;  // ties go to the older one
    std::vector<uint64_t> loads;
    uint64_t least = 0;
  };
  const auto less = [](const Partial* a, const Partial* b) {
    return a->spread != b->spread ? a->spread < b->spread : a->order > b->order;
  };
  std::vector<Partial> partials(costs.size());
  std::priority_queue<Partial*, std::vector<Partial*>, decltype(less)> queue(less);
  for (size_t i = 0; i < costs.size(); ++i) {
    partials[i] = {costs[i], i, {costs[i]}, 0};
    queue.push(&partials[i]);
  }
  uint64_t order = costs.size();
  while (queue.size() > 1) {
    Partial* a = queue.top();
    queue.pop();
    Partial* b = queue.top();
    queue.pop();
    // The heaviest of the one joins the lightest of the other.
    std::vector<uint64_t> loads(ranks, 0);
    for (size_t i = 0; i < a->loads.size(); ++i) loads[i] = a->loads[i];
    for (size_t i = 0; i < b->loads.size(); ++i) loads[ranks - 1 - i] += b->loads[i];
    std::sort(loads.begin(), loads.end(), std::greater<>());
    const uint64_t least = loads.back();
    a->least += b->least + least;
    while (!loads.empty() && loads.back() == least) loads.pop_back();
    for (uint64_t& load : loads) load -= least;
    a->loads = std::move(loads);
    a->spread = a->loads.empty() ? 0 : a->loads.front();
    a->order = order++;
    b->loads = {};
    queue.push(a);
  }
  std::vector<uint64_t> loads(ranks, 0);
  if (queue.empty()) return loads;
  const Partial& whole = *queue.top();
  std::copy(whole.loads.begin(), whole.loads.end(), loads.begin());
  for (uint64_t& load : loads) load += whole.least;
  return loads;
}

}  // namespace forebay::batch
