// What a trainer reports of one micro-batch: sums by source, length, engine and token lag.
//
// Plain values and pure functions; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "drift/sums.h"

namespace forebay::drift {

// Loss tokens of sequences that have all this in common.
struct Cell {
  SourceId source;
  uint8_t length = 0;   // LengthBucket of the sequence
  uint32_t engine = 0;  // index into Report::engines
  uint32_t lag = 0;     // of the tokens: the training version less theirs; kLagsKept at most
  Sums sums;
  template <class A>
  void Fields(A& a) {
    a(source, length, engine, lag, sums);
  }
};

struct Report {
  std::vector<std::string> engines;  // "" stands for those without a name
  // d = log p_trainer - log p_engine: how far the engines that sampled are from the trainer.
  std::vector<Cell> engine;
  // d = log p_reference - log p_trainer: how far the trainer is from the reference policy. Neither
  // engine nor lag says anything there; both are 0.
  std::vector<Cell> reference;
  template <class A>
  void Fields(A& a) {
    a(engines, engine, reference);
  }
};

// As a trainer says it: loss tokens of one sequence that have a lag and an engine in common.
struct Part {
  uint32_t sequence = 0;  // of the micro-batch
  uint32_t engine = 0;    // index into Report::engines
  uint32_t lag = 0;
  Sums sums;
  template <class A>
  void Fields(A& a) {
    a(sequence, engine, lag, sums);
  }
};

// Cells that differ in their sums alone become one; the rest is put in order.
void Compact(Report* report);
// InvalidArgument names field and limit.
absl::Status CheckReport(const Report& report, size_t sources);

// The bucket of a length: 2^(b-1) < tokens <= 2^b.
uint8_t LengthBucket(uint32_t tokens);
// "1025-2048" for 11.
std::string LengthName(uint32_t bucket);

}  // namespace forebay::drift
