// Drift by token lag, source, length and engine, faded step by step.
//
// Plain value, replicated state; not thread-safe. Bounded by drift/limits.h, whatever is added.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"
#include "drift/report.h"
#include "drift/sums.h"

namespace forebay::drift {

// Like is compared with like only: an engine whose tokens are older has a larger KL.
inline constexpr size_t kLagClasses = 4;
constexpr size_t LagClass(uint32_t lag) { return lag <= 1 ? lag : lag <= 3 ? 2 : 3; }
// "0", "1", "2-3", "4+".
const char* LagClassName(size_t lag_class);

// One source, length or engine.
struct Row {
  std::array<Sums, kLagClasses> by_lag;  // trainer against engines
  Sums reference;                        // reference against trainer; none of engines
  uint64_t last_step = 0;                // that was reported

  // At lag 0 both have the same weights: what is left is the mismatch of their kernels.
  const Sums& mismatch() const { return by_lag[0]; }
  Sums All() const;
  void Add(const Row& other);
  bool operator==(const Row&) const = default;
  template <class A>
  void Fields(A& a) {
    a(by_lag[0], by_lag[1], by_lag[2], by_lag[3], reference, last_step);
  }
};

struct Table {
  std::map<uint32_t, Sums> lags;  // kLagsKept counts all above as well
  std::map<SourceId, Row> sources;
  std::map<uint8_t, Row> lengths;
  std::map<std::string, Row> engines;
  Sums reference;

  // `step` says which engine was silent longest, when there are too many.
  void Add(const Report& report, uint64_t step);
  void Add(const Table& other);
  // All fades; each kMaxWindowSteps steps the largest |d| begin anew. `count` of steps so far.
  void StepDone(uint64_t count);
  // Of all tokens, whatever their lag.
  Sums All() const;
  bool empty() const { return lags.empty() && reference.empty(); }
  // Within the limits, and with sums that tokens can give.
  bool Holds() const;
  bool operator==(const Table&) const = default;
  template <class A>
  void Fields(A& a) {
    a(lags, sources, lengths, engines, reference);
  }

 private:
  void DropSilent();
};

}  // namespace forebay::drift
