#include "batch/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace forebay::batch {
namespace {

using Wide = unsigned __int128;

// 40 bits of coefficient, 62 of squared length and 24 of count stay below 128.
constexpr int kCoefficientBits = 40;

int BitWidth(Wide value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<uint64_t>(value));
}

absl::Status CheckCoefficient(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cost.", name, ": ", value, ", must be finite and at least 0"));
}

}  // namespace

absl::Status CheckCost(const Cost& cost) {
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
  // Scaling by a power of two and truncation are exact in IEEE arithmetic: the same everywhere.
  int exponent = 0;
  std::frexp(std::max(cost.linear, cost.quadratic), &exponent);
  const Wide linear = static_cast<uint64_t>(std::ldexp(cost.linear, kCoefficientBits - exponent));
  const Wide quadratic =
      static_cast<uint64_t>(std::ldexp(cost.quadratic, kCoefficientBits - exponent));
  const auto exact = [&](Wide n) { return n * (linear + quadratic * n); };

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

}  // namespace forebay::batch
