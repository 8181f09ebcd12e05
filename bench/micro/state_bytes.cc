// state-bytes: resident memory that tasks and held rollouts add to a shard's state, payloads and
// task contents excluded.
//
//   state-bytes [--tasks N] [--rollouts M]
//
// Prints one line of JSON. Rollouts have one sequence; a rollout's figure holds its attempt and its
// share of the group.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "bench/micro/state_load.h"

ABSL_FLAG(uint64_t, tasks, 10'000'000, "tasks of the one source");
ABSL_FLAG(uint64_t, rollouts, 10'000'000, "rollouts held in complete groups of 16");

namespace forebay::shard {
namespace {

constexpr uint32_t kBatch = 4096;

uint64_t ResidentBytes() {
  unsigned long long total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  FOREBAY_CHECK(file != nullptr && std::fscanf(file, "%llu %llu", &total, &resident) == 2);
  std::fclose(file);
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void Measure(uint64_t tasks, uint64_t rollouts) {
  StateLoad load;
  const uint64_t empty = ResidentBytes();
  for (uint64_t first = 0; first < tasks; first += kBatch) {
    load.AddTasks(first, std::min(first + kBatch, tasks));
  }
  const uint64_t with_tasks = ResidentBytes();
  for (uint64_t done = 0; done < rollouts; done += kBatch) {
    load.Fill(static_cast<uint32_t>(std::min<uint64_t>(kBatch, rollouts - done)));
  }
  const uint64_t with_rollouts = ResidentBytes();
  const auto per = [](uint64_t from, uint64_t to, uint64_t count) {
    return (static_cast<double>(to) - static_cast<double>(from)) / static_cast<double>(count);
  };
  std::printf(
      "{\"tasks\": %llu, \"rollouts\": %llu, \"bytes_per_task\": %.1f, \"bytes_per_rollout\": "
      "%.1f}\n",
      static_cast<unsigned long long>(tasks), static_cast<unsigned long long>(rollouts),
      per(empty, with_tasks, tasks), per(with_tasks, with_rollouts, rollouts));
}

}  // namespace
}  // namespace forebay::shard

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t tasks = absl::GetFlag(FLAGS_tasks);
  const uint64_t rollouts = absl::GetFlag(FLAGS_rollouts);
  if (tasks == 0 || rollouts == 0) {
    std::fprintf(stderr, "state-bytes: --tasks and --rollouts are at least 1\n");
    return 2;
  }
  forebay::shard::Measure(tasks, rollouts);
  return 0;
}
