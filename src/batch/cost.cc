#include "batch/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace forebay::batch {
namespace {

using Wide = unsigned __int128;

// 40 bits of coefficient, 62 of squared length and 24 of count stay below 128.
constexpr int kCoefficientBits = 40;
// 40 bits of a point's cost, 31 of length, 16 of fraction and 24 of count, too.
constexpr int kFractionBits = 16;

int BitWidth(Wide value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<uint64_t>(value));
}

absl::Status CheckCoefficient(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cost.", name, ": ", value, ", must be finite and at least 0"));
}

absl::Status CheckTable(absl::Span<const CostPoint> table) {
  if (table.size() > kCostPointsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("cost_table: ", table.size(), " points, at most ", kCostPointsMax));
  }
  CostPoint last;
  for (size_t i = 0; i < table.size(); ++i) {
    const CostPoint& point = table[i];
    const std::string name = absl::StrCat("cost_table[", i, "]");
    if (point.tokens <= last.tokens || point.tokens >= uint32_t{1} << 31) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".tokens: ", point.tokens, ", from ",
                                                     last.tokens + 1, " to 2147483647"));
    }
    if (!std::isfinite(point.cost) || point.cost <= 0 || point.cost < last.cost) {
      return absl::InvalidArgumentError(absl::StrCat(name, ".cost: ", point.cost,
                                                     ", must be finite, above 0 and at least ",
                                                     last.cost, ", what fewer tokens cost"));
    }
    last = point;
  }
  return absl::OkStatus();
}

// Both are exact in IEEE arithmetic, the same everywhere: scaling by a power of two, and
// truncation.
uint64_t ToInteger(double value, int exponent) {
  return static_cast<uint64_t>(std::ldexp(value, kCoefficientBits - exponent));
}

int ExponentOf(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return exponent;
}

class Curve {
 public:
  explicit Curve(const Cost& cost) {
    const int exponent = ExponentOf(std::max(cost.linear, cost.quadratic));
    linear_ = ToInteger(cost.linear, exponent);
    quadratic_ = ToInteger(cost.quadratic, exponent);
  }
  Wide operator()(Wide n) const { return n * (linear_ + quadratic_ * n); }

 private:
  Wide linear_, quadratic_;
};

class Lines {
 public:
  explicit Lines(absl::Span<const CostPoint> table) {
    const int exponent = ExponentOf(table.back().cost);
    points_.push_back({});
    for (const CostPoint& point : table) {
      points_.push_back({point.tokens, ToInteger(point.cost, exponent)});
    }
  }
  Wide operator()(uint32_t n) const {
    const auto at = std::lower_bound(points_.begin() + 1, points_.end() - 1, n,
                                     [](const Point& p, uint32_t m) { return p.tokens < m; });
    const Point& high = *at;
    const Point& low = *(at - 1);
    const Wide rise = static_cast<Wide>(high.cost - low.cost) * (n - low.tokens);
    return (static_cast<Wide>(low.cost) << kFractionBits) +
           (rise << kFractionBits) / (high.tokens - low.tokens);
  }

 private:
  struct Point {
    uint32_t tokens = 0;
    uint64_t cost = 0;
  };
  std::vector<Point> points_;
};

template <class Exact>
std::vector<uint64_t> Scaled(absl::Span<const uint32_t> tokens, const Exact& exact) {
  Wide total = 0;
  for (const uint32_t n : tokens) total += exact(n);
  // One bit less than promised leaves room for rounding up to 1.
  const int shift = std::max(0, BitWidth(total) - (kTotalCostBits - 1));
  std::vector<uint64_t> costs(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    costs[i] = std::max<uint64_t>(1, static_cast<uint64_t>(exact(tokens[i]) >> shift));
  }
  return costs;
}

}  // namespace

absl::Status CheckCost(const Cost& cost) {
  if (absl::Status status = CheckTable(cost.table); !status.ok()) return status;
  if (absl::Status status = CheckCoefficient("linear", cost.linear); !status.ok()) return status;
  if (absl::Status status = CheckCoefficient("quadratic", cost.quadratic); !status.ok()) {
    return status;
  }
  if (cost.linear == 0 && cost.quadratic == 0) {
    return absl::InvalidArgumentError("cost: linear 0 and quadratic 0, one must be above 0");
  }
  return absl::OkStatus();
}

std::vector<uint64_t> ScaledCosts(absl::Span<const uint32_t> tokens, const Cost& cost) {
  if (!cost.table.empty()) return Scaled(tokens, Lines(cost.table));
  return Scaled(tokens, Curve(cost));
}

}  // namespace forebay::batch
