// Advantages of a group's baseline set, and the filters that a complete group passes.
//
// Pure functions. Sums run in the order that the caller gives, so equal input gives equal bits
// everywhere.
#pragma once

#include <cstdint>
#include <span>

#include "codec/source_settings.h"

namespace forebay::rollout {

// Of the rewards of a baseline set. The deviation is the sample's (n - 1), as torch.std computes it
// and trainers that compute advantages themselves use it; of one reward it is 0.
struct Baseline {
  uint32_t size = 0;
  double mean = 0;
  double deviation = 0;
  double low = 0;
  double high = 0;
};

Baseline MeasureBaseline(std::span<const double> rewards);

// kGrpo: (r - m) / (s + 1e-6), 2402.03300. kDrGrpo: r - m, 2503.20783. kRloo: (r - m) n / (n - 1),
// 2402.14740. kReinforcePp: r - m; the ledger normalises it over the whole batch, 2501.03262.
// kNone: r. A baseline set of one gives 0, but for kNone.
float Advantage(codec::AdvantageKind kind, double reward, const Baseline& baseline);

enum class FilterResult : uint8_t { kKeep, kEqual, kSingle, kLength };

// `longest`: tokens of the longest rollout of the baseline set. kNone compares nothing, so one
// rollout may be a group.
FilterResult FilterGroup(const codec::SourceSettings& settings, const Baseline& baseline,
                         uint32_t longest);

}  // namespace forebay::rollout
