#include "rollout/advantage.h"

#include <algorithm>
#include <cmath>

namespace forebay::rollout {
namespace {

// Added to the deviation, and the largest spread that counts as none.
constexpr double kEpsilon = 1e-6;

}  // namespace

Baseline MeasureBaseline(std::span<const double> rewards) {
  Baseline baseline;
  baseline.size = static_cast<uint32_t>(rewards.size());
  if (rewards.empty()) return baseline;
  baseline.low = baseline.high = rewards[0];
  double sum = 0;
  for (double r : rewards) {
    sum += r;
    baseline.low = std::min(baseline.low, r);
    baseline.high = std::max(baseline.high, r);
  }
  const double n = static_cast<double>(rewards.size());
  baseline.mean = sum / n;
  if (rewards.size() == 1) return baseline;
  double squares = 0;
  for (double r : rewards) squares += (r - baseline.mean) * (r - baseline.mean);
  baseline.deviation = std::sqrt(squares / (n - 1));
  return baseline;
}

float Advantage(codec::AdvantageKind kind, double reward, const Baseline& baseline) {
  if (kind == codec::AdvantageKind::kNone) return static_cast<float>(reward);
  if (baseline.size < 2) return 0;
  const double centered = reward - baseline.mean;
  const double n = baseline.size;
  switch (kind) {
    case codec::AdvantageKind::kGrpo:
      return static_cast<float>(centered / (baseline.deviation + kEpsilon));
    case codec::AdvantageKind::kRloo:
      return static_cast<float>(centered * n / (n - 1));
    case codec::AdvantageKind::kDrGrpo:
    case codec::AdvantageKind::kReinforcePp:
    case codec::AdvantageKind::kNone:
      break;
  }
  return static_cast<float>(centered);
}

FilterResult FilterGroup(const codec::SourceSettings& settings, const Baseline& baseline,
                         uint32_t longest) {
  if (settings.filter_max_tokens != 0 && longest > settings.filter_max_tokens) {
    return FilterResult::kLength;
  }
  if (baseline.size < 2) {
    return settings.advantage == codec::AdvantageKind::kNone ? FilterResult::kKeep
                                                             : FilterResult::kSingle;
  }
  const bool equal = baseline.high - baseline.low <= kEpsilon || baseline.deviation <= kEpsilon;
  return equal && !settings.keep_equal_rewards ? FilterResult::kEqual : FilterResult::kKeep;
}

}  // namespace forebay::rollout
