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
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "shard/state.h"

ABSL_FLAG(uint64_t, tasks, 10'000'000, "tasks of the one source");
ABSL_FLAG(uint64_t, rollouts, 10'000'000, "rollouts held in complete groups of 16");

namespace forebay::shard {
namespace {

constexpr SourceId kSource{0};
constexpr SessionId kSession{1};
constexpr uint32_t kGroupSize = 16;
constexpr uint32_t kBatch = 4096;

uint64_t ResidentBytes() {
  unsigned long long total = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  FOREBAY_CHECK(file != nullptr && std::fscanf(file, "%llu %llu", &total, &resident) == 2);
  std::fclose(file);
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// A shard that hands out as much as it is asked for.
class Load {
 public:
  Load() {
    codec::SourceSettings settings;
    settings.name = "bench";
    settings.group_size = settings.attempts_per_task = settings.complete_at = kGroupSize;
    settings.order = codec::Order::kStatic;
    settings.max_lag = 1'000'000;
    Tell(codec::SourceChanged{kSource, settings});
    codec::VersionState versions;
    versions.rollouts_per_version = 1'000'000'000;
    Tell(versions);
    Run(OpenSession{kSession, "bench", "", "", ""});
  }

  void AddTasks(uint64_t first, uint64_t end) {
    shard::AddTasks add{kSource, {}};
    for (uint64_t i = first; i < end; ++i) {
      add.tasks.push_back({Mix64(i + 1), Mix64(i + 2), PayloadId(i + 1), 1});
    }
    Run(std::move(add));
    FOREBAY_CHECK(std::get<AddTasksReply>(effects_.replies.at(0).reply).added == end - first);
  }

  // Acquires `count` assignments and pushes a rollout for each; two rewards in turn, so that groups
  // stay.
  void Fill(uint32_t count) {
    Assign assign;
    assign.session = kSession;
    assign.request_id = ++request_;
    assign.max = count;
    Run(assign);
    PutRollouts put{kSession, {}};
    for (const Assignment& assignment :
         std::get<AssignReply>(effects_.replies.at(0).reply).assignments) {
      RolloutMeta& meta = put.rollouts.emplace_back();
      meta.lease = {assignment.attempt, assignment.token};
      meta.payload = PayloadId(++payload_);
      meta.payload_bytes = 500'000;
      meta.rewards_present = 1;
      meta.reward = assignment.number % 2;
      meta.first.tokens = 55'000;
      meta.first.prompt_tokens = 1'000;
      meta.first.loss_tokens = 54'000;
    }
    FOREBAY_CHECK(put.rollouts.size() == count);
    Run(std::move(put));
    FOREBAY_CHECK(std::get<PutRolloutsReply>(effects_.replies.at(0).reply).accepted == count);
  }

 private:
  void Tell(codec::ToShard message) { Run(FromLedger{++message_, std::move(message)}); }

  void Run(Command command) {
    effects_.Clear();
    state_.Apply(command, 1, &effects_);
    // The ledger would take what is sent to it at once.
    if (!effects_.to_ledger.empty()) {
      const uint64_t last = effects_.to_ledger.back().number;
      Effects none;
      state_.Apply(LedgerAcknowledged{last}, 0, &none);
    }
  }

  State state_{Options{ShardId(0), 1}};
  Effects effects_;
  uint64_t message_ = 0, request_ = 0, payload_ = 0;
};

void Measure(uint64_t tasks, uint64_t rollouts) {
  Load load;
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
