// What a replayed run is like: how long its rollouts are, how fast engines generate, how long a
// step of training takes. The numbers are fitted to 18 public reference runs, see replay.py.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>

namespace forebay::bench {

struct Workload {
  // Generation. Attempts on an engine share it: each goes on with
  // tokens_per_s / (1 + attempts / half_at), so that an engine never makes more than
  // tokens_per_s x half_at in all.
  uint32_t engines = 24;  // 192 GPUs, 8 an engine
  uint32_t slots = 128;   // attempts at a time
  double tokens_per_s = 115;
  double half_at = 5;

  // Lengths: log-normal, cut at the context.
  double mean_tokens = 5'700;
  double deviation = 1.3;  // standard deviation over mean
  uint32_t context_tokens = 65'536;
  // The mean grows by this factor over so many steps; 1: it stays.
  double growth = 1;
  uint32_t growth_steps = 50;

  // A task is solved by a share u^skew of its attempts, u uniform: a quarter on average.
  double skew = 2.7;
  bool filter = false;  // groups whose rewards are all equal

  // Training.
  uint32_t rollouts = 256;  // of a step
  uint32_t group_size = 16;
  uint32_t max_lag = 1;
  double step_s = 16;         // each step takes at least this ...
  double rollout_s = 0.0645;  // ... and for each rollout ...
  double million_tokens_s = 40.4;
  double sync_s = 15;  // until new weights are published

  uint64_t seed = 1;
};

// Of the attempt with this seed, begun when `steps` were committed; u in [0, 1) picks it.
uint32_t TokensOf(const Workload& workload, uint64_t attempt_seed, uint64_t steps);
// The share of its attempts that solve the task.
double SolvedShare(const Workload& workload, uint64_t task);
double TrainSeconds(const Workload& workload, uint64_t rollouts, uint64_t tokens);
// Of each of so many attempts on one engine.
double TokensPerSecond(const Workload& workload, uint64_t attempts);
// The shortest time in which full engines generate a step of mean lengths of which this share
// survives, and so the least share of its time that the trainer waits.
double GenerationSeconds(const Workload& workload, double survival);
double WaitingBound(const Workload& workload, double survival);

}  // namespace forebay::bench
