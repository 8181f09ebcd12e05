// What the ledger is asked of drift between trainer and engines; commands.h has all else.
//
// Plain values; not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "drift/report.h"
#include "ledger/micro_batch_ref.h"

namespace forebay::ledger {

// A trainer's sums over one micro-batch. Again changes nothing, also after the step was committed.
struct ReportSequences {
  Generation generation;
  StepId step;
  Revision revision;
  MicroBatchRef micro_batch;
  // As the trainer said it; Propose makes the report's cells of it, and leaves none.
  std::vector<drift::Part> engine_parts, reference_parts;
  drift::Report report;
  template <class A>
  void Fields(A& a) {
    a(generation, step, revision, micro_batch, engine_parts, reference_parts, report);
  }
};

// Steps are sealed again.
struct LiftHold {
  std::string reason;  // for people
  template <class A>
  void Fields(A& a) {
    a(reason);
  }
};

}  // namespace forebay::ledger
