// A closed loop over gRPC: some channels, some conversations on each, one thread that polls one
// completion queue. The same loop loads the limit server and the daemon; only the conversations
// differ.
//
// RunLoad blocks its caller; conversations are called on that thread alone.
#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/load/channel_arguments.h"
#include "bench/load/conversation.h"

namespace forebay::bench {

struct LoadOptions {
  std::string target;  // "127.0.0.1:7400" or "unix:/path"
  int channels = 1;    // each with a connection of its own
  int lanes = 1;       // conversations on each channel
  double warm_up_seconds = 0.5;
  double seconds = 2;
  uint64_t operations = 0;  // end once so many are done, warm-up included; 0: when the time is over
  pid_t server_pid = 0;     // whose CPU and memory are counted; 0 for none
  std::vector<pid_t> beside_pids;  // further processes whose CPU is counted, each for itself
  bool minimal_stack = true;
  ChannelArguments arguments;  // further ones, for experiments
  double connect_seconds = 10;
  double stall_seconds = 10;  // a run without any event for so long is given up
};

struct LoadResult {
  uint64_t operations = 0;  // within the measured time, as all that follows
  uint64_t payload_bytes = 0;
  double seconds = 0;
  double client_cpu_seconds = 0;
  double server_cpu_seconds = 0;
  std::vector<double> beside_cpu_seconds;  // parallel to LoadOptions::beside_pids
  uint64_t client_peak_rss_bytes = 0;      // of the process's whole life
  uint64_t server_peak_rss_bytes = 0;
  std::string script;  // what the first conversation exchanged
};

// Runs until the time is over. Fails if a call ends, a conversation refuses an answer, or nothing
// moves.
absl::StatusOr<LoadResult> RunLoad(
    const LoadOptions& options,
    const std::function<std::unique_ptr<Conversation>(int lane)>& make_conversation);

// One line of JSON: rates, CPU per operation and per GB, memory.
std::string ToJson(const std::string& name, const LoadOptions& options, const LoadResult& result);

}  // namespace forebay::bench
