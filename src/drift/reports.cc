#include "drift/reports.h"

#include <algorithm>

#include "drift/limits.h"

namespace forebay::drift {
namespace {

constexpr uint64_t kBits = 64;

}  // namespace

bool Reports::Counted(StepId step, Revision revision, uint64_t micro_batch) const {
  const auto it = steps_.find(step);
  if (it == steps_.end() || it->second.revision != revision) return false;
  const std::vector<uint64_t>& counted = it->second.counted;
  const uint64_t word = micro_batch / kBits;
  return word < counted.size() && (counted[word] >> (micro_batch % kBits) & 1) == 1;
}

bool Reports::Count(StepId step, Revision revision, uint64_t micro_batch, uint64_t micro_batches,
                    const Report& report) {
  if (Counted(step, revision, micro_batch)) {
    ++repeated_;
    return false;
  }
  OneStep& one = steps_[step];
  if (one.revision != revision) one = OneStep{.revision = revision};
  one.counted.resize(micro_batches / kBits + 1);
  one.counted[micro_batch / kBits] |= uint64_t{1} << (micro_batch % kBits);
  one.table.Add(report, step.value);
  ++reports_;
  return true;
}

void Reports::Committed(StepId step, Revision revision) {
  const auto it = steps_.find(step);
  if (it != steps_.end() && it->second.revision != revision) steps_.erase(it);
  const auto reported = steps_.find(step);
  if (reported != steps_.end()) {
    run_.StepDone(++steps_reported_);
    run_.Add(reported->second.table);
    reported->second.table = Table();
    reported->second.committed = true;
  }
  std::erase_if(steps_, [step](const auto& entry) {
    return entry.second.committed && entry.first.value + kStepsRemembered <= step.value;
  });
}

void Reports::Drop(StepId first) { steps_.erase(steps_.lower_bound(first), steps_.end()); }

const Table& Reports::OfStep(StepId step, Revision revision) const {
  static const Table* const kNothing = new Table();
  const auto it = steps_.find(step);
  return it == steps_.end() || it->second.revision != revision ? *kNothing : it->second.table;
}

Table Reports::Sum() const {
  Table sum = run_;
  for (const auto& [step, one] : steps_) sum.Add(one.table);
  return sum;
}

bool Reports::Holds(uint64_t open_steps) const {
  if (steps_.size() > open_steps + kStepsRemembered || !run_.Holds()) return false;
  return std::ranges::all_of(steps_, [](const auto& entry) {
    return entry.second.table.Holds() && (!entry.second.committed || entry.second.table.empty());
  });
}

}  // namespace forebay::drift
