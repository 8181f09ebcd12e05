// What a rollout's columns hold, looked at piece by piece: their shapes, the spread of their
// values, tokens that repeat.
//
// Pure. A collector belongs to one thread; pieces come in order and end between two values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/v1/types.pb.h"

namespace forebay::ctl {

// Bytes of one value; 0 for a dtype that is unknown.
uint32_t ValueBytes(v1::DType dtype);
// A float of any width.
bool IsFloat(v1::DType dtype);
// Rows of values; not ragged ones, and not a blob.
bool HasRows(const v1::Column& column);
// Rows, then the inner shape; of ragged columns and blobs their bytes. All sequences together.
std::vector<uint64_t> ShapeOf(const v1::RolloutHeader& header, const v1::Column& column);

// One value as a number; `at` holds all of its bytes.
double ValueAt(v1::DType dtype, const char* at);

// The values that are numbers, and how many are not.
struct ColumnStatistics {
  uint64_t values = 0;
  uint64_t missing = 0;                      // equal the column's `missing`, if that is not zero
  uint64_t nan = 0;                          // not missing
  uint64_t infinite = 0;                     // not missing
  double least = 0, mean = 0, greatest = 0;  // of the rest; zero if there is none
  uint64_t finite() const { return values - missing - nan - infinite; }
};

class StatisticsCollector {
 public:
  explicit StatisticsCollector(const v1::Column& column)
      : dtype_(column.dtype()), missing_(column.missing()) {}
  void Add(std::string_view piece);
  ColumnStatistics Result() const;

 private:
  bool IsMissing(double value) const;

  const v1::DType dtype_;
  const double missing_;
  ColumnStatistics found_;
  double sum_ = 0;
};

// A stretch of tokens that is the same few tokens again and again, as a policy that has come apart
// writes them.
struct Repetition {
  size_t begin = 0;   // of the stretch
  size_t tokens = 0;  // its length
  uint32_t period = 0;
};
// Of a stretch that counts: tokens of a period, of the stretch, and how often the period is there.
inline constexpr uint32_t kRepeatPeriodMax = 64;
inline constexpr size_t kRepeatTokensMin = 128;
inline constexpr size_t kRepeatTimesMin = 8;
// The longest such stretch, with its shortest period; nothing if there is none. Costs
// kRepeatPeriodMax steps a token.
std::optional<Repetition> FindRepetition(const std::vector<uint32_t>& tokens);

}  // namespace forebay::ctl
