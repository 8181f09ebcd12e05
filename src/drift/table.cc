#include "drift/table.h"

#include <algorithm>

#include "drift/limits.h"

namespace forebay::drift {
namespace {

// What has faded to less says nothing, and makes room.
constexpr double kTokensForgotten = 0.5;

bool Forgotten(const Sums& sums) { return sums.tokens + sums.non_finite < kTokensForgotten; }
bool Forgotten(const Row& row) { return Forgotten(row.All()) && Forgotten(row.reference); }

void FadeOne(Sums& sums, bool new_window) {
  sums.Fade(kKeptPerStep);
  if (!new_window) return;
  sums.older_max = sums.max_abs;
  sums.max_abs = 0;
}

void FadeOne(Row& row, bool new_window) {
  for (Sums& sums : row.by_lag) FadeOne(sums, new_window);
  FadeOne(row.reference, new_window);
}

template <class Key, class Value>
void FadeAll(std::map<Key, Value>& of, bool new_window) {
  for (auto& [key, value] : of) FadeOne(value, new_window);
  std::erase_if(of, [](const auto& entry) { return Forgotten(entry.second); });
}

template <class Key>
void AddAll(const std::map<Key, Row>& from, std::map<Key, Row>* to) {
  for (const auto& [key, row] : from) (*to)[key].Add(row);
}

bool SumsHold(const Row& row) {
  return WrongField(row.reference) == nullptr &&
         std::ranges::all_of(row.by_lag, [](const Sums& s) { return WrongField(s) == nullptr; });
}

template <class Key>
bool RowsHold(const std::map<Key, Row>& rows) {
  return std::ranges::all_of(rows, [](const auto& entry) { return SumsHold(entry.second); });
}

}  // namespace

const char* LagClassName(size_t lag_class) {
  constexpr std::array<const char*, kLagClasses> kNames = {"0", "1", "2-3", "4+"};
  return lag_class < kNames.size() ? kNames[lag_class] : "";
}

Sums Row::All() const {
  Sums sum;
  for (const Sums& sums : by_lag) sum.Add(sums);
  return sum;
}

void Row::Add(const Row& other) {
  for (size_t i = 0; i < kLagClasses; ++i) by_lag[i].Add(other.by_lag[i]);
  reference.Add(other.reference);
  last_step = std::max(last_step, other.last_step);
}

void Table::Add(const Report& report, uint64_t step) {
  for (const Cell& cell : report.engine) {
    lags[std::min(cell.lag, kLagsKept)].Add(cell.sums);
    for (Row* row :
         {&sources[cell.source], &lengths[cell.length], &engines[report.engines[cell.engine]]}) {
      row->by_lag[LagClass(cell.lag)].Add(cell.sums);
      row->last_step = std::max(row->last_step, step);
    }
  }
  for (const Cell& cell : report.reference) {
    reference.Add(cell.sums);
    for (Row* row : {&sources[cell.source], &lengths[cell.length]}) {
      row->reference.Add(cell.sums);
      row->last_step = std::max(row->last_step, step);
    }
  }
  DropSilent();
}

void Table::Add(const Table& other) {
  for (const auto& [lag, sums] : other.lags) lags[lag].Add(sums);
  AddAll(other.sources, &sources);
  AddAll(other.lengths, &lengths);
  AddAll(other.engines, &engines);
  reference.Add(other.reference);
  DropSilent();
}

void Table::DropSilent() {
  while (engines.size() > kEnginesKept) {
    engines.erase(std::ranges::min_element(
        engines, {}, [](const auto& entry) { return entry.second.last_step; }));
  }
}

void Table::StepDone(uint64_t count) {
  const bool new_window = count % kMaxWindowSteps == 0;
  FadeAll(lags, new_window);
  FadeAll(sources, new_window);
  FadeAll(lengths, new_window);
  FadeAll(engines, new_window);
  FadeOne(reference, new_window);
  if (Forgotten(reference)) reference = {};
}

Sums Table::All() const {
  Sums sum;
  for (const auto& [lag, sums] : lags) sum.Add(sums);
  return sum;
}

bool Table::Holds() const {
  if (!lags.empty() && lags.rbegin()->first > kLagsKept) return false;
  if (!lengths.empty() && lengths.rbegin()->first >= kLengthBuckets) return false;
  if (engines.size() > kEnginesKept) return false;
  for (const auto& [name, row] : engines) {
    if (name.size() > kEngineNameBytesMax) return false;
  }
  const auto sums_hold = [](const auto& entry) { return WrongField(entry.second) == nullptr; };
  return std::ranges::all_of(lags, sums_hold) && RowsHold(sources) && RowsHold(lengths) &&
         RowsHold(engines) && WrongField(reference) == nullptr;
}

}  // namespace forebay::drift
