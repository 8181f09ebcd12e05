// The curriculum's hot path and its loading, by the number of tasks.
//
// bytes_per_task is what a task takes in memory, content excluded; worst_add_us is the longest
// AddTasks of 1,000 tasks.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "curriculum/curriculum.h"

namespace forebay::curriculum {
namespace {

constexpr SourceId kSource{0};
constexpr uint64_t kBatch = 1000;

std::vector<NewTask> Batch(uint64_t first) {
  std::vector<NewTask> tasks;
  for (uint64_t i = first; i < first + kBatch; ++i) {
    tasks.push_back({Mix64(i + 1), Mix64(i + 2), PayloadId(i + 1), 1 + static_cast<float>(i % 7)});
  }
  return tasks;
}

// Of this thread: what others do on the machine is no pause of ours.
double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void Add(Curriculum& curriculum, const std::vector<NewTask>& tasks) {
  std::vector<PayloadId> unused;
  FOREBAY_CHECK(curriculum.AddTasks(kSource, tasks, &unused).ok());
}

void SetOrder(Curriculum& curriculum, codec::Order order) {
  codec::SourceSettings settings;
  settings.order = order;
  curriculum.PutSource(kSource, settings);
}

// Kept from one benchmark to the next of the same size: filling 10 million takes seconds.
Curriculum& Filled(uint64_t tasks) {
  static std::unique_ptr<Curriculum> curriculum;
  static uint64_t size = 0;
  if (size == tasks) return *curriculum;
  curriculum = std::make_unique<Curriculum>(1);
  SetOrder(*curriculum, codec::Order::kShuffled);
  for (uint64_t first = 0; first < tasks; first += kBatch) Add(*curriculum, Batch(first));
  size = tasks;
  return *curriculum;
}

void AddAll(benchmark::State& state) {
  const auto tasks = static_cast<uint64_t>(state.range(0));
  double worst = 0;
  double bytes = 0;
  for (auto _ : state) {
    Curriculum curriculum(1);
    SetOrder(curriculum, codec::Order::kShuffled);
    for (uint64_t first = 0; first < tasks; first += kBatch) {
      const auto batch = Batch(first);
      const double start = CpuMicroseconds();
      Add(curriculum, batch);
      worst = std::max(worst, CpuMicroseconds() - start);
    }
    bytes = static_cast<double>(curriculum.memory_bytes());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["bytes_per_task"] = bytes / static_cast<double>(tasks);
  state.counters["worst_add_us"] = worst;
}

void DrawTask(benchmark::State& state) {
  Curriculum& curriculum = Filled(static_cast<uint64_t>(state.range(0)));
  SetOrder(curriculum, static_cast<codec::Order>(state.range(1)));
  Prng prng(5);
  for (auto _ : state) benchmark::DoNotOptimize(curriculum.DrawTask(kSource, prng));
  state.SetItemsProcessed(state.iterations());
}

void FindTask(benchmark::State& state) {
  const auto tasks = static_cast<uint64_t>(state.range(0));
  const Curriculum& curriculum = Filled(tasks);
  Prng prng(5);
  for (auto _ : state) {
    benchmark::DoNotOptimize(curriculum.Find(kSource, Mix64(prng.Below(tasks) + 1)));
  }
  state.SetItemsProcessed(state.iterations());
}

constexpr int kSmall = 100'000;
constexpr int kBig = 10'000'000;

BENCHMARK(AddAll)->Arg(kSmall)->Unit(benchmark::kMillisecond);
BENCHMARK(AddAll)->Arg(kBig)->Iterations(1)->Unit(benchmark::kMillisecond);
// Orders: 0 shuffled, 1 static, 2 weighted.
BENCHMARK(DrawTask)->ArgNames({"tasks", "order"})->ArgsProduct({{kSmall}, {0, 1, 2}});
BENCHMARK(FindTask)->Arg(kSmall);
BENCHMARK(DrawTask)->ArgNames({"tasks", "order"})->ArgsProduct({{kBig}, {0, 1, 2}});
BENCHMARK(FindTask)->Arg(kBig);

}  // namespace
}  // namespace forebay::curriculum
