// States to start from are of the running format: one of an older format is refused at its first
// bytes, and what is made of it tries nothing.
//
// With FOREBAY_WRITE_CORPUS set, they are written anew first.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "codec/archive.h"
#include "ledger/state.h"
#include "shard/state.h"
#include "tests/unit/ledger/harness.h"
#include "tests/unit/shard/harness.h"

namespace forebay {
namespace {

constexpr uint64_t kSeed = 7;
constexpr ShardId kShard{0};

using States = std::map<std::string, std::string>;  // by the file's name

// As the fuzzer takes them: what kind of machine, then its snapshot.
template <class State>
std::string Input(char machine, const State& state) {
  std::string input(1, machine);
  codec::Writer writer(&input);
  state.Snapshot(writer);
  return input;
}

void AddShards(States* states) {
  const auto add = [states](const std::string& name, const shard::State& state) {
    (*states)[name] = Input('\0', state);
  };
  const auto train = [](shard::Harness& h, uint64_t step, bool retain) {
    h.Group();
    h.Reserve(step, 1, static_cast<uint32_t>(step - 1));
    h.Commit(step, static_cast<uint32_t>(step), retain);
    h.FromLedger(h.Versions(static_cast<uint32_t>(step)));
  };
  shard::Harness empty(kSeed, kShard);
  add("shard_empty", empty.state);

  shard::Harness busy(kSeed, kShard);  // all stages at once
  busy.Start();
  train(busy, 1, true);
  busy.Group();
  busy.Reserve(2, 1, 1);
  busy.Group();
  const auto open = busy.Acquire(4).assignments;
  busy.Push(open.at(0), 1);
  add("shard", busy.state);

  train(busy, 3, true);
  busy.GoBack(1, 1, 1, 1);
  add("shard_rewound", busy.state);

  shard::Harness kept(kSeed, kShard);
  kept.Start(400);
  kept.keep = {1, true, 10'000};
  for (uint64_t step = 1; step <= 4; ++step) train(kept, step, step % 2 == 0);
  add("shard_kept", kept.state);
}

void AddLedgers(States* states) {
  const auto add = [states](const std::string& name, const ledger::State& state) {
    (*states)[name] = Input('\1', state);
  };
  const ledger::Options options{.run_seed = kSeed, .shards = 2};
  add("ledger_empty", ledger::State(options));

  ledger::Harness h(options);
  h.PutTrainSource();
  h.Attach();
  ledger::StepSpec spec = h.Spec(4);
  spec.cost_table = {{100, 1}, {200, 3}};
  ASSERT_TRUE(h.OpenFilled(1, spec).ok());
  ASSERT_TRUE(h.Run(ledger::OpenStep{h.generation, StepId(2), h.Spec(2)}).ok());
  add("ledger", h.state);
  ASSERT_TRUE(h.Commit(1).status.ok());
  add("ledger_committed", h.state);
  for (uint32_t i = 0; i < 2; ++i) h.shards[i].AddReady({.version = 1});
  h.Summarize();
  ASSERT_TRUE(h.Commit(2, h.step(2).revision.value).status.ok());
  ASSERT_TRUE(h.GoBack(1).status.ok());
  add("ledger_rewound", h.state);
}

template <class State>
bool Restores(State state, std::string_view bytes) {
  codec::Reader reader(bytes);
  return state.Restore(reader) && reader.Done();
}

TEST(Corpus, StatesAreOfTheRunningFormat) {
  const std::filesystem::path folder = FOREBAY_CORPUS "/snapshot";
  States made;
  AddShards(&made);
  AddLedgers(&made);
  if (std::getenv("FOREBAY_WRITE_CORPUS") != nullptr) {
    for (const auto& [name, bytes] : made) std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(input.empty()) << entry.path();
    const std::string_view bytes = std::string_view(input).substr(1);
    const bool taken =
        input[0] % 2 == 0
            ? Restores(shard::State(shard::Options{kShard, kSeed}), bytes)
            : Restores(ledger::State(ledger::Options{.run_seed = kSeed, .shards = 2}), bytes);
    EXPECT_TRUE(taken) << entry.path()
                       << " is of another format: run this with FOREBAY_WRITE_CORPUS set";
    made.erase(entry.path().filename());
  }
  EXPECT_TRUE(made.empty()) << made.begin()->first << " is missing";
}

}  // namespace
}  // namespace forebay
