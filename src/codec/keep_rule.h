// Which rollouts of committed steps stay for people to look at, after all else of their steps went.
//
// Plain value. It travels with each message that lets payloads go, so that every replica keeps the
// same ones, whatever its own configuration says.
#pragma once

#include <cstdint>

namespace forebay::codec {

struct KeepRule {
  double sample = 0;       // share of all rollouts, drawn by a hash of their ids
  bool flagged = false;    // and those whose attempt did not finish: truncated, aborted
  uint64_t bytes_max = 0;  // of payloads: the oldest go for the newest; 0 keeps nothing
  bool operator==(const KeepRule&) const = default;
  template <class A>
  void Fields(A& a) {
    a(sample, flagged, bytes_max);
  }
};

}  // namespace forebay::codec
