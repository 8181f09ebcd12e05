#include "codec/name_table.h"

#include <algorithm>

namespace forebay::codec {
namespace {

void AddName(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

}  // namespace

bool NameTable::Add(const SourceSettings& settings) {
  std::vector<std::string> columns = columns_;
  std::vector<std::string> rewards = rewards_;
  for (const std::string& column : settings.required_columns) AddName(column, &columns);
  for (const auto& [key, weight] : settings.rewards) AddName(key, &rewards);
  if (columns.size() > kNamesMax || rewards.size() > kNamesMax) return false;
  columns_ = std::move(columns);
  rewards_ = std::move(rewards);
  return true;
}

uint64_t NameTable::ColumnBits(const RolloutHeader& header) const {
  uint64_t bits = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (header.FindColumn(columns_[i]) < kColumnsMax) bits |= uint64_t{1} << i;
  }
  return bits;
}

void NameTable::RewardNumbers(const RolloutHeader& header, std::vector<uint8_t>* out) const {
  out->clear();
  for (const HeaderReward& reward : header.rewards) {
    out->push_back(static_cast<uint8_t>(RewardNumber(reward.name)));
  }
}

uint64_t NameTable::RequiredBits(const SourceSettings& settings) const {
  uint64_t bits = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto& required = settings.required_columns;
    if (std::find(required.begin(), required.end(), columns_[i]) != required.end()) {
      bits |= uint64_t{1} << i;
    }
  }
  return bits;
}

uint32_t NameTable::RewardNumber(std::string_view name) const {
  for (size_t i = 0; i < rewards_.size(); ++i) {
    if (rewards_[i] == name) return static_cast<uint32_t>(i);
  }
  return kNamesMax;
}

}  // namespace forebay::codec
