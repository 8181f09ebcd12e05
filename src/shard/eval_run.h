// An evaluation run: every task of an eval source, so many attempts each, pinned to one policy
// version.
//
// Replicated state; plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "shard/source_state.h"

namespace forebay::shard {

struct EvalRun {
  static constexpr uint64_t kSlot = 1 << 16;  // unit of `share` and `owed`

  EvalRunId run;
  SourceId source;
  PolicyVersion version;
  uint32_t attempts = 1;
  uint64_t share = kSlot;  // of the slots of a fitting request, as a part of kSlot
  uint64_t owed = 0;       // slots that the share has earned and that were not used
  uint64_t order = 0;      // of starting
  uint32_t next_task = 0;  // tasks from here on are not begun
  uint32_t end_task = 0;   // the source's count of tasks at the start
  uint32_t open_groups = 0;
  bool done = false;
  HandOutQueue queue;
  // Results; see EvalView.
  uint64_t tasks = 0;
  uint64_t tasks_done = 0;
  uint64_t rollouts = 0;
  uint64_t failed = 0;
  double mean_sum = 0;
  double mean_square_sum = 0;
  std::vector<double> pass_sums;
  uint64_t tokens_sum = 0;

  template <class A>
  void Fields(A& a) {
    a(run, source, version, attempts, share, owed, order, next_task, end_task, open_groups, done,
      queue, tasks, tasks_done, rollouts, failed, mean_sum, mean_square_sum, pass_sums, tokens_sum);
  }
};

// Adds a finished task: the rewards of its attempts, in order.
void AddTaskResult(const std::vector<double>& rewards, EvalRun* run);

// The unbiased estimator of pass@k from n attempts of which c passed: 1 - C(n - c, k) / C(n, k),
// 2107.03374.
double PassAt(uint32_t n, uint32_t c, uint32_t k);

}  // namespace forebay::shard
