// All that trainers have reported: of the steps that are open, and of the run so far.
//
// Replicated state; not thread-safe. A micro-batch counts once under its step's revision, however
// often it is reported; what was reported under a revision that ended does not count, for the same
// sequences come again under the next one. A step's sums join the run's when it is committed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "drift/table.h"

namespace forebay::drift {

class Reports {
 public:
  // Whether the micro-batch, by its number in the step's plan, was counted under that revision.
  bool Counted(StepId step, Revision revision, uint64_t micro_batch) const;
  // False, and nothing changes, if it was counted already. `micro_batches`: of the whole step.
  bool Count(StepId step, Revision revision, uint64_t micro_batch, uint64_t micro_batches,
             const Report& report);
  // The step was committed: fades what there was, and adds the step's sums. Steps come in order.
  void Committed(StepId step, Revision revision);
  // Steps from this one on were aborted or taken back.
  void Drop(StepId first);

  // Of an open step; empty if nothing was reported under that revision.
  const Table& OfStep(StepId step, Revision revision) const;
  // The run's, with the open steps'.
  Table Sum() const;
  uint64_t reports() const { return reports_; }
  uint64_t repeated() const { return repeated_; }
  uint64_t steps() const { return steps_reported_; }
  // `open_steps`: the most there can be.
  bool Holds(uint64_t open_steps) const;

  template <class A>
  void Fields(A& a) {
    a(steps_, run_, reports_, repeated_, steps_reported_);
  }

 private:
  struct OneStep {
    Revision revision;
    bool committed = false;
    std::vector<uint64_t> counted;  // a bit a micro-batch
    Table table;                    // moved to the run's at the commit
    template <class A>
    void Fields(A& a) {
      a(revision, committed, counted, table);
    }
  };

  std::map<StepId, OneStep> steps_;  // open ones, and the last committed ones
  Table run_;
  uint64_t reports_ = 0;  // counted, over the run
  uint64_t repeated_ = 0;
  uint64_t steps_reported_ = 0;  // committed
};

}  // namespace forebay::drift
