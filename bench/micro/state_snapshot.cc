// state-snapshot: what a snapshot of a big shard costs: the pause, the encoding, what is copied
// while it goes on, and the restoring.
//
//   state-snapshot [--tasks N] [--rollouts M]
//
// Prints one line of JSON. All on one thread, without a disk: pieces are encoded and dropped, with
// a batch of 64 assignments and rollouts between two of them.
#include <absl/flags/flag.h>
#include <absl/flags/parse.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "base/check.h"
#include "bench/micro/state_load.h"
#include "codec/snapshot_parts.h"

ABSL_FLAG(uint64_t, tasks, 10'000'000, "tasks of the one source");
ABSL_FLAG(uint64_t, rollouts, 1'000'000, "rollouts held in complete groups of 16");

namespace forebay::shard {
namespace {

constexpr uint32_t kBatch = 4096;
constexpr uint32_t kBetween = 64;

class Clock {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct Written {
  double pause_s = 0, encode_s = 0;
  uint64_t bytes = 0, copied_bytes = 0;
};

// With `between`, the state goes on meanwhile.
Written Write(StateLoad& load, bool between) {
  Written written;
  const Clock pause;
  codec::Parts parts;
  load.state().Snapshot(parts.writer());
  written.pause_s = pause.Seconds();
  std::string bytes;
  while (codec::Piece piece = parts.Next()) {
    bytes.clear();
    const Clock clock;
    piece(&bytes);
    written.encode_s += clock.Seconds();
    written.bytes += bytes.size();
    piece = nullptr;
    if (between) load.Fill(kBetween);
  }
  written.copied_bytes = parts.copies()->bytes;
  return written;
}

void Measure(uint64_t tasks, uint64_t rollouts) {
  StateLoad load;
  for (uint64_t first = 0; first < tasks; first += kBatch) {
    load.AddTasks(first, std::min(first + kBatch, tasks));
  }
  for (uint64_t done = 0; done < rollouts; done += kBatch) {
    load.Fill(static_cast<uint32_t>(std::min<uint64_t>(kBatch, rollouts - done)));
  }
  const Written first = Write(load, true), still = Write(load, false);
  std::string bytes;
  codec::Writer writer(&bytes);
  load.state().Snapshot(writer);
  FOREBAY_CHECK(bytes.size() == still.bytes);
  State restored(Options{ShardId(0), 1});
  codec::Reader reader(bytes);
  const Clock clock;
  FOREBAY_CHECK(restored.Restore(reader));
  const double restore_s = clock.Seconds();
  std::printf(
      "{\"tasks\": %llu, \"rollouts\": %llu, \"bytes\": %llu, \"pause_ms\": %.3f, "
      "\"pause_ms_again\": %.3f, \"encode_s\": %.3f, \"copied_bytes\": %llu, "
      "\"restore_s\": %.3f}\n",
      static_cast<unsigned long long>(tasks), static_cast<unsigned long long>(rollouts),
      static_cast<unsigned long long>(still.bytes), first.pause_s * 1e3, still.pause_s * 1e3,
      still.encode_s, static_cast<unsigned long long>(first.copied_bytes), restore_s);
}

}  // namespace
}  // namespace forebay::shard

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t tasks = absl::GetFlag(FLAGS_tasks);
  const uint64_t rollouts = absl::GetFlag(FLAGS_rollouts);
  if (tasks == 0 || rollouts == 0) {
    std::fprintf(stderr, "state-snapshot: --tasks and --rollouts are at least 1\n");
    return 2;
  }
  forebay::shard::Measure(tasks, rollouts);
  return 0;
}
