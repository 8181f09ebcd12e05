// Counts how long trainers, actors and pushes wait, and for what, by looking again and again.
//
// Tick on the ticker's thread; the counts go to RunMetrics.
#pragma once

#include <cstdint>

#include "server/services.h"

namespace forebay::server {

class WaitSampler {
 public:
  explicit WaitSampler(ServiceContext* context) : context_(context) {}
  void Tick(uint64_t now_ms);

 private:
  ServiceContext* const context_;
  uint64_t last_ms_ = 0;  // of the ticker's thread alone
};

}  // namespace forebay::server
