// The payload store's bookkeeping without the bytes: every id ever given, which are alive, and what
// they take.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace forebay::simulation {

class Payloads {
 public:
  explicit Payloads(uint64_t bytes_max) : bytes_max_(bytes_max), reserve_(bytes_max / 10) {}

  // Ordinary pushes leave the completion reserve alone.
  bool Fits(uint64_t bytes) const { return used_ + bytes <= bytes_max_ - reserve_; }
  bool FitsReserve(uint64_t bytes) const { return used_ + bytes <= bytes_max_; }
  PayloadId Store(uint64_t bytes) {
    FOREBAY_CHECK(FitsReserve(bytes));
    bytes_.push_back(bytes + 1);
    used_ += bytes;
    ++alive_;
    return PayloadId(bytes_.size());
  }
  // It lies on disk alone from then on.
  void Cool(PayloadId id) {
    if (!Alive(id) || !cold_ids_.insert(id).second) return;
    used_ -= bytes_[id.value - 1] - 1;
    cold_ += bytes_[id.value - 1] - 1;
  }
  bool Alive(PayloadId id) const {
    return id.value > 0 && id.value <= bytes_.size() && bytes_[id.value - 1] > 0;
  }
  // False: it is not there (any more).
  bool Free(PayloadId id) {
    if (!Alive(id)) return false;
    (cold_ids_.erase(id) > 0 ? cold_ : used_) -= bytes_[id.value - 1] - 1;
    bytes_[id.value - 1] = 0;
    --alive_;
    damaged_.erase(id);
    return true;
  }
  // From now on it cannot be read.
  void Damage(PayloadId id) {
    if (Alive(id)) damaged_.insert(id);
  }
  bool Damaged(PayloadId id) const { return damaged_.contains(id); }
  const std::set<PayloadId>& damaged() const { return damaged_; }
  uint64_t ids() const { return bytes_.size(); }  // 1 .. ids() were given
  uint64_t alive() const { return alive_; }
  uint64_t used() const { return used_; }
  uint64_t cold() const { return cold_; }
  uint64_t bytes_max() const { return bytes_max_; }
  uint64_t FreeBytes() const {
    const uint64_t ordinary = bytes_max_ - reserve_;
    return ordinary > used_ ? ordinary - used_ : 0;
  }

 private:
  const uint64_t bytes_max_;
  const uint64_t reserve_;
  std::vector<uint64_t> bytes_;  // by id: size + 1, 0 when freed
  std::set<PayloadId> damaged_;  // not freed
  std::set<PayloadId> cold_ids_;
  uint64_t used_ = 0;  // memory
  uint64_t cold_ = 0;  // on disk alone
  uint64_t alive_ = 0;
};

}  // namespace forebay::simulation
