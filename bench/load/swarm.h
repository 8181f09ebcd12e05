// Thousands of actors at once, each on a connection of its own: what a connection costs the daemon,
// what a renewal costs it, and how long an actor waits for its next assignment meanwhile.
//
// Nothing is a closed loop here: actors renew, push and acquire at set times that are spread
// evenly, as those of a run do, however slowly they are answered. Blocks; one thread at a time.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace forebay::bench {

struct SwarmOptions {
  std::string target;
  int connections = 10'000;
  double seconds = 5;        // of each phase
  double renew_seconds = 5;  // between two renewals of an actor
  double turn_seconds = 20;  // between two rollouts of an actor, in the second phase
  pid_t server_pid = 0;      // whose memory and CPU are counted
  // For the limit server: four steps as ToJson tells them in "script"; empty for a daemon.
  std::string script;
  double connect_seconds = 120;  // for all of them to be ready
  double answer_seconds = 20;    // a word that is not answered for so long ends the run
};

struct SwarmLatency {
  double median_ms = 0, p99_ms = 0, worst_ms = 0;
  uint64_t answers = 0;
};

struct SwarmResult {
  int connections = 0;
  double connect_seconds = 0;  // until all were ready
  uint64_t resident_bytes_before = 0, resident_bytes_ready = 0, resident_bytes_after = 0;
  // First phase: nothing but renewals. Second: turns as well.
  double renewing_cpu_seconds = 0, turning_cpu_seconds = 0;  // the server's
  double client_cpu_seconds = 0;                             // of both
  SwarmLatency renewals, acquires;                           // of the first, of the second
  uint64_t renewals_beside = 0;                              // of the second
  uint64_t skipped = 0;  // words that were not said, since the last one had no answer yet
  std::string script;    // what was exchanged
};

// Fails if an actor is refused, disconnected or not answered, or the process may not open so many
// files. The daemon has to have tasks.
absl::StatusOr<SwarmResult> RunSwarm(const SwarmOptions& options);

// One line of JSON.
std::string ToJson(const SwarmResult& result);

}  // namespace forebay::bench
