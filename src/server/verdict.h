// From an observation of the daemon to what GetStatus says: a verdict, its reasons, and what waits.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/config.h"
#include "server/observation.h"

namespace forebay::server {

enum class VerdictKind { kOk, kDegraded, kUnavailable };

struct Judgement {
  VerdictKind verdict = VerdictKind::kOk;
  std::vector<std::string> reasons;  // the gravest first
  std::vector<std::string> waits;
};

struct VerdictLimits {
  uint64_t trainer_wait_ms = 30'000;
  uint64_t engine_behind = 2;
  uint64_t silent_ms = 90'000;
};

VerdictLimits LimitsOf(const node::Config& config);
// What waits for a disk or for payload memory, and why: trouble first. Empty: nothing does.
std::vector<std::string> StorageWaits(const Observation& seen);
Judgement Judge(const Observation& seen, const VerdictLimits& limits);

}  // namespace forebay::server
