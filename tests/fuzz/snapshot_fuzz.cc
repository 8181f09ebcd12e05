// Restoring a state from any bytes: what is taken holds all invariants and gives the same bytes
// again. The first byte chooses the machine.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "codec/archive.h"
#include "ledger/state.h"
#include "shard/state.h"

namespace {

template <class State>
std::string Snapshot(const State& state) {
  std::string bytes;
  forebay::codec::Writer writer(&bytes);
  state.Snapshot(writer);
  return bytes;
}

[[noreturn]] void Fail(const char* machine, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", machine, why.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  forebay::codec::Reader reader(bytes);
  if (data[0] % 2 == 0) {
    forebay::shard::State state(forebay::shard::Options{forebay::ShardId(0), 7});
    if (!state.Restore(reader)) return 0;
    if (const std::string broken = state.CheckInvariants(); !broken.empty()) Fail("shard", broken);
    if (!bytes.starts_with(Snapshot(state))) Fail("shard", "another snapshot");
  } else {
    forebay::ledger::State state(forebay::ledger::Options{.run_seed = 7, .shards = 2});
    if (!state.Restore(reader)) return 0;
    if (const auto status = state.InvariantsHold(); !status.ok()) Fail("ledger", status.ToString());
    if (!bytes.starts_with(Snapshot(state))) Fail("ledger", "another snapshot");
  }
  return 0;
}
