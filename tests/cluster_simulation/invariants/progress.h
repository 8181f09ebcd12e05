// 13. After faults heal, the run makes progress within a stated virtual time: operations of every
// machine are acknowledged, and every replica that is to stay is in sync again, and no other.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/configuration.h"

namespace forebay::cluster_simulation {

class Progress {
 public:
  static constexpr const char* kName = "13 progress after faults heal";
  static constexpr uint64_t kWithinMs = 30'000;
  static constexpr uint64_t kOperations = 20;  // of each machine

  void Healed(uint64_t now_ms, std::vector<uint64_t> acknowledged) {
    healed_ms_ = now_ms;
    acknowledged_ = std::move(acknowledged);
  }
  bool Shown(uint32_t machine, uint64_t acknowledged,
             const cluster::Configuration& configuration) const {
    return acknowledged >= acknowledged_[machine] + kOperations &&
           configuration.in_sync.size() + configuration.leaving.size() ==
               configuration.incarnations.size();
  }
  bool Late(uint64_t now_ms) const { return now_ms > healed_ms_ + kWithinMs; }

 private:
  uint64_t healed_ms_ = 0;
  std::vector<uint64_t> acknowledged_;
};

}  // namespace forebay::cluster_simulation
