// buffer-bench: the load generator. Each subcommand runs one measurement and prints one line of
// JSON.
//
//   buffer-bench limit --target 127.0.0.1:PORT --script "unary:100>100" --lanes 64
//
// docs/benchmarks.md has the command of each figure.

#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/load/load_client.h"
#include "bench/load/script.h"

ABSL_FLAG(std::string, target, "127.0.0.1:7400", "server, host:port or unix:/path");
ABSL_FLAG(int, channels, 1, "connections");
ABSL_FLAG(int, lanes, 1, "independent closed loops on each connection");
ABSL_FLAG(int, window, 1, "rounds in flight on each lane");
ABSL_FLAG(double, warm_up_seconds, 0.5, "time before the measured time");
ABSL_FLAG(double, seconds, 2, "measured time");
ABSL_FLAG(int, server_pid, 0, "process whose CPU and memory are reported as the server's");
ABSL_FLAG(bool, minimal_stack, true, "leave out gRPC's filters on the client's side");
ABSL_FLAG(std::vector<std::string>, channel_arguments, {},
          "gRPC channel arguments to try, name=integer");
ABSL_FLAG(std::string, script, "", "limit: the messages of a round, see bench/load/script.h");
ABSL_FLAG(uint64_t, operations_per_round, 1, "limit: what a round counts for");

namespace forebay::bench {
namespace {

absl::StatusOr<LoadOptions> OptionsFromFlags() {
  LoadOptions options;
  options.target = absl::GetFlag(FLAGS_target);
  options.channels = absl::GetFlag(FLAGS_channels);
  options.lanes = absl::GetFlag(FLAGS_lanes);
  options.warm_up_seconds = absl::GetFlag(FLAGS_warm_up_seconds);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.server_pid = absl::GetFlag(FLAGS_server_pid);
  options.minimal_stack = absl::GetFlag(FLAGS_minimal_stack);
  auto arguments = ParseChannelArguments(absl::GetFlag(FLAGS_channel_arguments));
  if (!arguments.ok()) return arguments.status();
  options.arguments = *std::move(arguments);
  return options;
}

// The limit server's share of a pair: messages of given sizes, answered and forgotten.
absl::Status RunLimit() {
  auto steps = ParseScript(absl::GetFlag(FLAGS_script));
  if (!steps.ok()) return steps.status();
  const ScriptOptions script{*std::move(steps), static_cast<uint32_t>(absl::GetFlag(FLAGS_window)),
                             absl::GetFlag(FLAGS_operations_per_round)};
  auto options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  auto result =
      RunLoad(*options, [&](int) { return std::make_unique<ScriptConversation>(script); });
  if (!result.ok()) return result.status();
  std::puts(ToJson("limit", absl::GetFlag(FLAGS_script), *options, *result).c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "buffer-bench SUBCOMMAND [flags]; \"buffer-bench help\" names the subcommands");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const std::map<std::string, std::function<absl::Status()>> subcommands = {{"limit", RunLimit}};
  if (words.size() == 2 && std::string(words[1]) == "help") {
    for (const auto& [name, run] : subcommands) std::puts(name.c_str());
    return 0;
  }
  const auto subcommand = words.size() == 2 ? subcommands.find(words[1]) : subcommands.end();
  if (subcommand == subcommands.end()) {
    std::fprintf(stderr, "%s\n", std::string(absl::ProgramUsageMessage()).c_str());
    return 2;
  }
  const absl::Status status = subcommand->second();
  if (!status.ok()) {
    std::fprintf(stderr, "buffer-bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace forebay::bench

int main(int argc, char** argv) { return forebay::bench::Main(argc, argv); }
