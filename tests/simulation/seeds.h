// What the mains of both simulators do with seeds: draw the first, and run one history after
// another.
#pragma once

#include <sys/random.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace forebay::simulation {

// `given`, or a random one if it is 0; printed, so that what follows can be run again.
inline uint64_t FirstSeed(uint64_t given) {
  uint64_t seed = given;
  while (seed == 0) {
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) seed = 1;
    seed >>= 32;
  }
  std::printf("seed %lu\n", seed);
  std::fflush(stdout);
  return seed;
}

// So many histories (0: as many as there is time for, or one), for so long (0: without a limit), up
// to the first that fails. `run(seed, &stats)` adds what a history did, reports, and says whether
// it passed. The exit code.
template <class Stats, class Run>
int RunSeeds(uint64_t seed, uint64_t histories, double minutes, Run run) {
  using Clock = std::chrono::steady_clock;
  const uint64_t wanted = histories > 0 ? histories : minutes > 0 ? UINT64_MAX : 1;
  const auto until = Clock::now() + std::chrono::duration<double>(minutes * 60);
  Stats stats;
  uint64_t failed = 0;
  auto told = Clock::now();
  for (uint64_t i = 0; i < wanted && failed == 0 && (minutes == 0 || Clock::now() < until); ++i) {
    failed += run(seed + i, &stats) ? 0 : 1;
    if (Clock::now() - told < std::chrono::seconds(30)) continue;
    told = Clock::now();
    std::printf("seeds %lu to %lu: %lu events, no violation\n", seed, seed + i, stats.events);
    std::fflush(stdout);
  }
  std::printf("seeds %lu to %lu: %s\n", seed, seed + stats.histories - 1, stats.Text().c_str());
  std::printf("%lu histories passed, %lu failed\n", stats.histories - failed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace forebay::simulation
