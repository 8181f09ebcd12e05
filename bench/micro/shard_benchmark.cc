// A shard's state machine alone: assignments, pushes, groups that complete, steps that reserve and
// commit.
//
// An iteration is a batch of 64; s_per_item is for one assignment or one rollout. Rewards
// alternate, so every group becomes ready and is trained.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "shard/primary.h"
#include "shard/state.h"

namespace forebay::shard {
namespace {

constexpr SourceId kSource{0};
constexpr SessionId kActor{1};
constexpr uint64_t kTaskBatch = 10'000;

class Bench {
 public:
  explicit Bench(uint64_t tasks) : state_(Options{ShardId(0), 1}) {
    codec::SourceSettings settings;
    settings.name = "bench";
    FromLedger(codec::SourceChanged{kSource, settings});
    codec::VersionState versions;
    versions.rollouts_per_version = 1u << 20;
    FromLedger(versions);
    Apply(OpenSession{kActor, "actor", "engine", "", ""}, 0);
    for (uint64_t first = 0; first < tasks; first += kTaskBatch) {
      AddTasks add{kSource, {}};
      for (uint64_t i = first; i < first + kTaskBatch; ++i) {
        add.tasks.push_back({Mix64(i + 1), Mix64(i + 2), PayloadId(i + 1), 1});
      }
      Apply(add, 0);
    }
    primary_ = std::make_unique<Primary>(state_, 0);
  }

  const Effects& Apply(const Command& command, Tag tag) {
    effects_.Clear();
    state_.Apply(command, tag, &effects_);
    return effects_;
  }
  const Effects& FromLedger(codec::ToShard message) {
    return Apply(shard::FromLedger{++ledger_number_, std::move(message)}, 0);
  }

  void Assign64() {
    Assign assign;
    assign.session = kActor;
    assign.request_id = ++request_id_;
    assign.max = 64;
    command_ = std::move(assign);
    Apply(command_, 1);
    reply_ = std::move(std::get<AssignReply>(effects_.replies[0].reply));
    FOREBAY_CHECK(reply_.assignments.size() == 64);
  }

  void FillPush() {
    PutRollouts put{kActor, std::vector<RolloutMeta>(64)};
    for (size_t i = 0; i < 64; ++i) {
      RolloutMeta& meta = put.rollouts[i];
      meta.lease = {reply_.assignments[i].attempt, reply_.assignments[i].token};
      meta.payload = PayloadId(++payload_);
      meta.payload_bytes = 100;
      meta.duration_ms = 1000;
      meta.rewards_present = 1;
      meta.reward = static_cast<double>(i & 1);
      meta.first = {20, 5, 10, std::nullopt, {}};
    }
    command_ = std::move(put);
  }
  void Push() {
    Apply(command_, 2);
    FOREBAY_CHECK(std::get<PutRolloutsReply>(effects_.replies[0].reply).accepted == 64);
  }

  void Train(uint32_t groups) {
    codec::Reserve reserve;
    reserve.step = StepId(++step_);
    reserve.revision = Revision(1);
    reserve.request = step_;
    reserve.groups = groups;
    FromLedger(reserve);
    FromLedger(codec::StepCommitted{StepId(step_), Revision(1), {0, 0}});
    Apply(LedgerAcknowledged{step_}, 0);
  }

  // As a primary does it, with a log that commits at once.
  void AcquireThroughPrimary() {
    Assign assign;
    assign.session = kActor;
    assign.request_id = ++request_id_;
    assign.max = 64;
    output_.Clear();
    primary_->Acquire(++now_ms_, 1, assign, 0, &output_);
    RunProposed();
    reply_ = std::move(std::get<AssignReply>(effects_.replies[0].reply));
    FOREBAY_CHECK(reply_.assignments.size() == 64);
  }
  void PushThroughPrimary() {
    output_.Clear();
    primary_->Propose(++now_ms_, 2, std::move(command_), &output_);
    RunProposed();
  }

 private:
  void RunProposed() {
    FOREBAY_CHECK(output_.commands.size() == 1);
    auto [tag, command] = std::move(output_.commands[0]);
    Apply(command, tag);
    output_.Clear();
    primary_->Applied(now_ms_, command, effects_, &output_);
  }

  State state_;
  std::unique_ptr<Primary> primary_;
  Effects effects_;
  Output output_;
  Command command_;
  AssignReply reply_;
  uint64_t now_ms_ = 0;
  uint64_t ledger_number_ = 0;
  uint64_t request_id_ = 0;
  uint64_t payload_ = 0;
  uint64_t step_ = 0;
};

void PerItem(benchmark::State& state) {
  const double items = static_cast<double>(state.iterations()) * 64;
  state.counters["s_per_item"] =
      benchmark::Counter(items, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// Assigned, pushed, completed, reserved, committed.
void All(benchmark::State& state) {
  Bench bench(static_cast<uint64_t>(state.range(0)));
  int batches = 0;
  for (auto _ : state) {
    bench.Assign64();
    bench.FillPush();
    bench.Push();
    if (++batches % 16 == 0) bench.Train(64);
  }
  PerItem(state);
}
BENCHMARK(All)->Arg(100'000)->Arg(1'000'000);

void Assigns(benchmark::State& state) {
  Bench bench(static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) {
    bench.Assign64();
    state.PauseTiming();
    bench.FillPush();
    bench.Push();
    bench.Train(4);
    state.ResumeTiming();
  }
  PerItem(state);
}
BENCHMARK(Assigns)->Arg(100'000);

// With the completion of groups.
void Pushes(benchmark::State& state) {
  Bench bench(static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) {
    state.PauseTiming();
    bench.Assign64();
    bench.FillPush();
    state.ResumeTiming();
    bench.Push();
    state.PauseTiming();
    bench.Train(4);
    state.ResumeTiming();
  }
  PerItem(state);
}
BENCHMARK(Pushes)->Arg(100'000);

void ThroughPrimary(benchmark::State& state) {
  Bench bench(static_cast<uint64_t>(state.range(0)));
  int batches = 0;
  for (auto _ : state) {
    bench.AcquireThroughPrimary();
    bench.FillPush();
    bench.PushThroughPrimary();
    if (++batches % 16 == 0) bench.Train(64);
  }
  PerItem(state);
}
BENCHMARK(ThroughPrimary)->Arg(100'000);

}  // namespace
}  // namespace forebay::shard
