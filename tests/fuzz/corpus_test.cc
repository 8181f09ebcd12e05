// States to start from are of the running format: one of an older format is refused at its first
// bytes, and what is made of it tries nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "codec/archive.h"
#include "ledger/state.h"
#include "shard/state.h"

namespace forebay {
namespace {

template <class State>
bool Restores(State state, std::string_view bytes) {
  codec::Reader reader(bytes);
  return state.Restore(reader) && reader.Done();
}

TEST(Corpus, StatesAreOfTheRunningFormat) {
  int states = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FOREBAY_CORPUS "/snapshot")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(input.empty()) << entry.path();
    const std::string_view bytes = std::string_view(input).substr(1);
    const bool taken =
        input[0] % 2 == 0
            ? Restores(shard::State(shard::Options{ShardId(0), 7}), bytes)
            : Restores(ledger::State(ledger::Options{.run_seed = 7, .shards = 2}), bytes);
    EXPECT_TRUE(taken) << entry.path() << " is of another format; replace it with a new one";
    ++states;
  }
  EXPECT_GE(states, 4);
}

}  // namespace
}  // namespace forebay
