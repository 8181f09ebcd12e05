// The names that sources care about (weighed rewards, required columns), numbered, so that a push
// is checked against its source by bits and small numbers instead of text.
//
// Immutable once built, so safe from any thread; a change of a source's settings makes a new table.
// Numbers are valid for the table that gave them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/rollout_header.h"
#include "codec/source_settings.h"

namespace forebay::codec {

// A reward that some source weighs.
struct NumberedReward {
  uint8_t name = 0;
  double value = 0;
};

class NameTable {
 public:
  // Distinct required columns, and distinct reward keys, over all sources; PutSource refuses more.
  static constexpr size_t kNamesMax = 64;

  // Builds up the table; false if it would hold more than kNamesMax names of a kind (then it is
  // unchanged).
  bool Add(const SourceSettings& settings);

  // Bit i: the header has the column numbered i.
  uint64_t ColumnBits(const RolloutHeader& header) const;
  // The number of each of the header's rewards, in order; kNamesMax if no source weighs it.
  void RewardNumbers(const RolloutHeader& header, std::vector<uint8_t>* out) const;

  uint64_t RequiredBits(const SourceSettings& settings) const;
  // The name of a required column that is missing.
  std::string_view column_name(uint32_t number) const { return columns_[number]; }
  // kNamesMax if no source weighs it.
  uint32_t RewardNumber(std::string_view name) const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::string> rewards_;
};

}  // namespace forebay::codec
