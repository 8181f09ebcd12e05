// Names the engines that are further from the trainer than the others.
//
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "drift/table.h"

namespace forebay::drift {

// An engine is judged by tokens of one lag class, against the engines that have as many of these:
// at least kTokensJudged each, and kEnginesJudged of them. It is an outlier when its mean k3 is
// above median + max(kDeviations x 1.4826 x MAD, median, kLeast), where MAD is the median of
// |k3 - median|: the last two keep engines that agree nearly to the bit from being told apart.
inline constexpr double kTokensJudged = 1000;
inline constexpr size_t kEnginesJudged = 3;
inline constexpr double kDeviations = 6;
inline constexpr double kLeast = 1e-4;
// So is one of whose tokens more than this share, and more than twice the median of the shares,
// are not finite or were clamped.
inline constexpr double kBadShare = 0.01;

struct Outlier {
  std::string engine;  // "" has no name
  size_t lag_class = 0;
  bool unusable = false;  // by its share of tokens that are not finite or were clamped
  double value = 0;       // mean k3, or that share
  double median = 0;      // over the engines
  double limit = 0;       // that it is above
  double tokens = 0;
};

// The worst class of each outlier, the farthest above its limit first.
std::vector<Outlier> FindOutliers(const Table& table);

}  // namespace forebay::drift
