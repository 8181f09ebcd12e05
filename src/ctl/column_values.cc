#include "ctl/column_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/rollout_header.h"

namespace forebay::ctl {
namespace {

template <class T>
T Copy(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// IEEE half: sign, 5 bits of exponent, 10 of fraction.
double HalfAt(const char* at) {
  const auto bits = Copy<uint16_t>(at);
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 0x400, exponent - 25);
}

uint64_t Rows(const v1::RolloutHeader& header, v1::Domain domain) {
  uint64_t rows = 0;
  for (const auto& sequence : header.sequences()) {
    switch (domain) {
      case v1::DOMAIN_RESPONSE_TOKEN:
        rows += sequence.tokens() - sequence.prompt_tokens();
        break;
      case v1::DOMAIN_TOKEN_BUT_LAST:
        rows += sequence.tokens() - 1;
        break;
      case v1::DOMAIN_SEQUENCE:
        ++rows;
        break;
      default:
        rows += sequence.tokens();
    }
  }
  return rows;
}

}  // namespace

uint32_t ValueBytes(v1::DType dtype) { return codec::DTypeBytes(static_cast<uint32_t>(dtype)); }

bool IsFloat(v1::DType dtype) {
  return dtype == v1::DTYPE_F16 || dtype == v1::DTYPE_BF16 || dtype == v1::DTYPE_F32 ||
         dtype == v1::DTYPE_F64;
}

bool HasRows(const v1::Column& column) {
  return column.domain() != v1::DOMAIN_RAGGED && column.domain() != v1::DOMAIN_BLOB;
}

std::vector<uint64_t> ShapeOf(const v1::RolloutHeader& header, const v1::Column& column) {
  if (!HasRows(column)) return {column.bytes()};
  std::vector<uint64_t> shape = {Rows(header, column.domain())};
  shape.insert(shape.end(), column.inner().begin(), column.inner().end());
  return shape;
}

double ValueAt(v1::DType dtype, const char* at) {
  switch (dtype) {
    case v1::DTYPE_I8:
      return Copy<int8_t>(at);
    case v1::DTYPE_U16:
      return Copy<uint16_t>(at);
    case v1::DTYPE_I16:
      return Copy<int16_t>(at);
    case v1::DTYPE_U32:
      return Copy<uint32_t>(at);
    case v1::DTYPE_I32:
      return Copy<int32_t>(at);
    case v1::DTYPE_U64:
      return static_cast<double>(Copy<uint64_t>(at));
    case v1::DTYPE_I64:
      return static_cast<double>(Copy<int64_t>(at));
    case v1::DTYPE_F16:
      return HalfAt(at);
    case v1::DTYPE_BF16:
      return std::bit_cast<float>(uint32_t{Copy<uint16_t>(at)} << 16);
    case v1::DTYPE_F32:
      return Copy<float>(at);
    case v1::DTYPE_F64:
      return Copy<double>(at);
    default:
      return Copy<uint8_t>(at);
  }
}

bool StatisticsCollector::IsMissing(double value) const {
  return std::isnan(missing_) ? std::isnan(value) : missing_ != 0 && value == missing_;
}

void StatisticsCollector::Add(std::string_view piece) {
  const uint32_t size = ValueBytes(dtype_);
  for (; piece.size() >= size; piece.remove_prefix(size)) {
    const double value = ValueAt(dtype_, piece.data());
    ++found_.values;
    if (IsMissing(value)) {
      ++found_.missing;
    } else if (std::isnan(value)) {
      ++found_.nan;
    } else if (std::isinf(value)) {
      ++found_.infinite;
    } else {
      const bool first = found_.finite() == 1;
      found_.least = first ? value : std::min(found_.least, value);
      found_.greatest = first ? value : std::max(found_.greatest, value);
      sum_ += value;
    }
  }
}

ColumnStatistics StatisticsCollector::Result() const {
  ColumnStatistics result = found_;
  if (result.finite() > 0) result.mean = sum_ / static_cast<double>(result.finite());
  return result;
}

std::optional<Repetition> FindRepetition(const std::vector<uint32_t>& tokens) {
  std::optional<Repetition> longest;
  for (uint32_t period = 1; period <= kRepeatPeriodMax; ++period) {
    const size_t least = std::max<size_t>(kRepeatTokensMin, kRepeatTimesMin * period);
    size_t same = 0;  // tokens up to here that equal the one a period before
    for (size_t i = period; i < tokens.size(); ++i) {
      same = tokens[i] == tokens[i - period] ? same + 1 : 0;
      const size_t stretch = same + period;
      if (same == 0 || stretch < least) continue;
      if (longest.has_value() && stretch <= longest->tokens) continue;
      longest = Repetition{.begin = i + 1 - stretch, .tokens = stretch, .period = period};
    }
  }
  return longest;
}

}  // namespace forebay::ctl
