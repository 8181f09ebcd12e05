#include "cluster/leadership.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::cluster {

Leadership::Leadership(std::vector<bool> needed, uint64_t without_after_ms)
    : needed_(std::move(needed)), without_after_ms_(without_after_ms) {}

bool Leadership::Enough(const std::vector<bool>& serving) const {
  bool another = false;
  for (size_t i = 0; i < needed_.size(); ++i) {
    if (needed_[i] && !serving[i]) return false;
    another = another || (!needed_[i] && serving[i]);
  }
  return another;
}

Leadership::Change Leadership::Look(uint64_t now_ms, const std::vector<bool>& serving) {
  FOREBAY_CHECK(serving.size() == needed_.size());
  if (leads_) {
    const bool whole = std::ranges::all_of(missing_, [&](uint32_t i) { return serving[i]; });
    return whole && !missing_.empty() ? Change::kWhole : Change::kNone;
  }
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < serving.size(); ++i) {
    if (!serving[i]) missing.push_back(i);
  }
  if (!std::exchange(enough_, Enough(serving))) enough_ms_ = now_ms;
  const bool goes_without = enough_ && now_ms - enough_ms_ >= without_after_ms_;
  if (!missing.empty() && !goes_without) return Change::kNone;
  leads_ = true;
  missing_ = std::move(missing);
  return Change::kLead;
}

}  // namespace forebay::cluster
