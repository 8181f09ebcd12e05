// What the ledger counts over a run.
//
// Plain values, replicated state; not thread-safe.
#pragma once

#include <cstdint>

namespace forebay::ledger {

struct Counters {
  uint64_t steps_opened = 0;
  uint64_t steps_sealed = 0;
  uint64_t steps_replanned = 0;  // by trainers ...
  uint64_t steps_damaged = 0;    // ... and because bytes of theirs were lost
  uint64_t steps_committed = 0;
  uint64_t steps_aborted = 0;
  uint64_t steps_unpackable = 0;  // aborted because their groups could not be packed
  uint64_t groups_requested = 0;
  uint64_t groups_reserved = 0;
  uint64_t groups_returned = 0;  // by aborts, replans and late answers
  uint64_t groups_committed = 0;
  uint64_t rollouts_committed = 0;
  uint64_t tokens_committed = 0;
  uint64_t loss_tokens_committed = 0;
  uint64_t filler_micro_batches = 0;
  uint64_t stale_answers = 0;  // reservations of a step that was gone
  uint64_t columns_written = 0;
  uint64_t generations = 0;
  uint64_t versions_published = 0;
  uint64_t rewinds = 0;
  uint64_t steps_taken_back = 0;  // committed before, by rewinds
  uint64_t steps_served_again = 0;
  uint64_t steps_released = 0;  // lost their payloads before a checkpoint covered them
  uint64_t shard_absences = 0;  // times that a shard was taken for absent
  uint64_t shard_returns = 0;
  uint64_t groups_of_absent = 0;  // that open steps gave up, of those that were returned
  bool operator==(const Counters&) const = default;
  template <class A>
  void Fields(A& a) {
    a(steps_opened, steps_sealed, steps_replanned, steps_damaged, steps_committed, steps_aborted,
      steps_unpackable, groups_requested, groups_reserved, groups_returned, groups_committed,
      rollouts_committed, tokens_committed, loss_tokens_committed, filler_micro_batches,
      stale_answers, columns_written, generations, versions_published, rewinds, steps_taken_back,
      steps_served_again, steps_released, shard_absences, shard_returns, groups_of_absent);
  }
};

}  // namespace forebay::ledger
