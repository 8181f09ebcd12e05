// Rules that the simulator may switch off in a state machine, to see that its invariants notice.
//
// Plain values. All false in every other program.
#pragma once

namespace forebay {

struct Mutations {
  bool accept_old_tokens = false;   // a push under a token that is not the attempt's last
  bool accept_duplicates = false;   // a push of an attempt that is in already
  bool ignore_lag = false;          // at reservation
  bool ignore_generations = false;  // calls of trainers that were replaced
  bool replan_in_place = false;     // an open step packed anew without a new revision
  bool keep_damaged = false;        // a lost rollout that its step gives back is ready again
  bool trust_reads = false;         // what the store reads back is served unchecked
  bool expect_all = false;          // by admission, to survive (to compare with, not a fault)
  bool wait_for_absent = false;     // a shard that does not answer is never taken for absent
  bool forget_absent = false;       // it is not told that steps gave its groups up
  bool release_alone = false;       // a shard gives groups back that no step has given up
};

}  // namespace forebay
