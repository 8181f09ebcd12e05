// Reports for tests.
#pragma once

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/prng.h"
#include "drift/report.h"

namespace forebay::drift {

// `tokens` tokens that all have this d.
inline Cell CellOf(uint16_t source, uint32_t length, uint32_t engine, uint32_t lag, double d,
                   int tokens = 1) {
  Cell cell{
      .source = SourceId(source), .length = LengthBucket(length), .engine = engine, .lag = lag};
  for (int i = 0; i < tokens; ++i) cell.sums.Count(d, 0);
  return cell;
}

inline Report RandomReport(Prng& prng, size_t parts) {
  Report report;
  for (int i = 0; i < 5; ++i) report.engines.push_back(absl::StrCat("engine-", i));
  const auto cell = [&prng](uint32_t engine, uint32_t lag) {
    Cell made = CellOf(static_cast<uint16_t>(prng.Below(3)),
                       static_cast<uint32_t>(1 + prng.Below(5000)), engine, lag, 0, 0);
    for (uint64_t i = prng.Below(50); i > 0; --i) {
      made.sums.Count(prng.Below(30) == 0 ? NAN : 60 * prng.Unit() - 30, 0);
    }
    return made;
  };
  for (size_t i = 0; i < parts; ++i) {
    report.engine.push_back(
        cell(static_cast<uint32_t>(prng.Below(5)), static_cast<uint32_t>(prng.Below(6))));
    if (prng.Below(4) == 0) report.reference.push_back(cell(0, 0));
  }
  return report;
}

// Counts and the largest |d| to the bit, sums but for rounding.
inline bool Near(const Sums& a, const Sums& b) {
  const auto near = [](double x, double y) {
    return std::abs(x - y) <= 1e-9 * (1 + std::abs(x) + std::abs(y));
  };
  return a.tokens == b.tokens && a.non_finite == b.non_finite && a.clamped == b.clamped &&
         a.MaxAbs() == b.MaxAbs() && near(a.k1, b.k1) && near(a.k2, b.k2) && near(a.k3, b.k3);
}

}  // namespace forebay::drift
