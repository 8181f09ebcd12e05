// buffer-bench: the load generator. Each subcommand runs one measurement and prints one line of
// JSON.
//
//   buffer-bench limit --target 127.0.0.1:PORT --script "unary:100>100" --lanes 64
//   buffer-bench assign --batch 64 --tasks 100000 --lanes 8
//   buffer-bench push --rollout_bytes 500000 --window 8 --channels 4
//   buffer-bench fetch --tokens 65536 --window 4
//   buffer-bench swarm --channels 10000
//   buffer-bench fetch --tokens 16384 --micro_batches 8 --stage_layers 15 --window 4
//   buffer-bench steady --target 127.0.0.1:7400,127.0.0.1:7401    a line for each event, until its
//                                                                 standard input ends
//
// docs/benchmarks.md has the command of each figure.

#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <absl/flags/usage.h>
#include <absl/strings/numbers.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/load/actor.h"
#include "bench/load/daemon.h"
#include "bench/load/fetch.h"
#include "bench/load/limit_actor.h"
#include "bench/load/load_client.h"
#include "bench/load/script.h"
#include "bench/load/steady.h"
#include "bench/load/swarm.h"
#include "bench/replay/command.h"

ABSL_FLAG(std::string, target, "127.0.0.1:7400", "server, host:port or unix:/path");
ABSL_FLAG(int, channels, 1, "connections");
ABSL_FLAG(int, lanes, 1, "independent closed loops on each connection");
ABSL_FLAG(int, window, 1, "rounds in flight on each lane");
ABSL_FLAG(double, warm_up_seconds, 0.5, "time before the measured time");
ABSL_FLAG(double, seconds, 2, "measured time");
ABSL_FLAG(uint64_t, operations, 0,
          "end once so many are done, warm-up included; 0: when the time is over");
ABSL_FLAG(int, server_pid, 0, "process whose CPU and memory are reported as the server's");
ABSL_FLAG(std::vector<std::string>, beside_pids, {},
          "further processes whose CPU is reported, each for itself");
ABSL_FLAG(bool, minimal_stack, true, "leave out gRPC's filters on the client's side");
ABSL_FLAG(std::vector<std::string>, channel_arguments, {},
          "gRPC channel arguments to try, name=integer");
ABSL_FLAG(std::string, script, "",
          "limit: the messages of a round, see bench/load/script.h; swarm: of an actor, as a "
          "swarm at a daemon reports them, to be exchanged with the limit server");
ABSL_FLAG(int, batch, 64, "assign: assignments a call and rollouts a frame");
ABSL_FLAG(uint64_t, tasks, 100'000, "assign, swarm: tasks that the source has");
ABSL_FLAG(int, group_size, 16, "assign, push, swarm: rollouts of a group");
ABSL_FLAG(int, rollout_bytes, 500'000, "push: payload of a rollout");
ABSL_FLAG(bool, keep, false,
          "assign, push: two rewards in turn, so that groups are kept when they complete");
ABSL_FLAG(int, tokens, 65'536, "fetch: tokens of a micro-batch");
ABSL_FLAG(int, micro_batches, 1, "fetch: of the step, fetched in turn");
ABSL_FLAG(double, renew_seconds, 5, "swarm: between two renewals of an actor");
ABSL_FLAG(double, turn_seconds, 20, "swarm: between two rollouts of an actor");
ABSL_FLAG(int, stage_layers, 0,
          "fetch: instead of five columns the slice that a stage of so many of 60 layers takes");
ABSL_FLAG(uint64_t, operations_per_round, 1, "limit: what a round counts for");
ABSL_FLAG(bool, as_actor, false,
          "limit: read leases and encode rollouts as the actors of assign do, --batch of them");

namespace forebay::bench {
namespace {

constexpr uint32_t kTaskBytes = 32;

absl::StatusOr<LoadOptions> OptionsFromFlags() {
  LoadOptions options;
  options.target = absl::GetFlag(FLAGS_target);
  options.channels = absl::GetFlag(FLAGS_channels);
  options.lanes = absl::GetFlag(FLAGS_lanes);
  options.warm_up_seconds = absl::GetFlag(FLAGS_warm_up_seconds);
  options.seconds = absl::GetFlag(FLAGS_seconds);
  options.operations = absl::GetFlag(FLAGS_operations);
  options.server_pid = absl::GetFlag(FLAGS_server_pid);
  for (const std::string& text : absl::GetFlag(FLAGS_beside_pids)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(text, &pid) || pid <= 0) {
      return absl::InvalidArgumentError("--beside_pids: \"" + text + "\" is no process");
    }
    options.beside_pids.push_back(pid);
  }
  options.minimal_stack = absl::GetFlag(FLAGS_minimal_stack);
  auto arguments = ParseChannelArguments(absl::GetFlag(FLAGS_channel_arguments));
  if (!arguments.ok()) return arguments.status();
  options.arguments = *std::move(arguments);
  return options;
}

absl::Status Report(const char* name, const LoadOptions& options,
                    const absl::StatusOr<LoadResult>& result) {
  if (!result.ok()) return result.status();
  std::puts(ToJson(name, options, *result).c_str());
  return absl::OkStatus();
}

// Rollouts of 16 tokens, all of a batch in one frame.
ActorLoad TinyRollouts() {
  constexpr uint32_t kTokens = 16;
  const std::vector<ColumnShape> columns = PlainColumns();
  ActorLoad load;
  load.batch = static_cast<uint32_t>(absl::GetFlag(FLAGS_batch));
  const char* payload = SharedPayload(kTokens * BytesPerToken(columns));
  load.rollouts.emplace_back(kTokens, columns, payload, 1);
  if (absl::GetFlag(FLAGS_keep)) load.rollouts.emplace_back(kTokens, columns, payload, 2);
  return load;
}

// With the client's work of the assign load, see limit_actor.h.
absl::Status RunLimitAsActor(const std::vector<ScriptStep>& steps, const LoadOptions& options) {
  const ActorLoad load = TinyRollouts();
  if (auto first = LimitActorConversation::Make(&load, steps); !first.ok()) return first.status();
  return Report("limit", options, RunLoad(options, [&](int) -> std::unique_ptr<Conversation> {
                  return *LimitActorConversation::Make(&load, steps);
                }));
}

// The limit server's share of a pair: messages of given sizes, answered and forgotten.
absl::Status RunLimit() {
  auto steps = ParseScript(absl::GetFlag(FLAGS_script));
  if (!steps.ok()) return steps.status();
  const ScriptOptions script{*std::move(steps), static_cast<uint32_t>(absl::GetFlag(FLAGS_window)),
                             absl::GetFlag(FLAGS_operations_per_round)};
  auto options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  if (absl::GetFlag(FLAGS_as_actor)) return RunLimitAsActor(script.steps, *options);
  return Report("limit", *options, RunLoad(*options, [&](int) {
                  return std::make_unique<ScriptConversation>(script);
                }));
}

// Sets up tasks and a session for each conversation, then runs the actors.
absl::Status RunActors(const char* name, const char* source, uint64_t tasks, ActorLoad load) {
  auto options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  Daemon daemon(options->target);
  const auto group_size = static_cast<uint32_t>(absl::GetFlag(FLAGS_group_size));
  if (absl::Status s = daemon.PutTasks(source, group_size, tasks, kTaskBytes); !s.ok()) return s;
  std::vector<Daemon::Session> sessions;
  for (int i = 0; i < options->channels * options->lanes; ++i) {
    auto session = daemon.OpenSession();
    if (!session.ok()) return session.status();
    sessions.push_back(*session);
  }
  std::vector<LeftOver> left_over;
  load.left_over = &left_over;
  const auto result = RunLoad(*options, [&](int lane) {
    return std::make_unique<ActorConversation>(&load, sessions[lane]);
  });
  for (const LeftOver& left : left_over) {
    if (absl::Status s = daemon.Release(left.session, left.leases); !s.ok()) return s;
  }
  return Report(name, *options, result);
}

// Assignments acquired, tiny rollouts of 16 tokens pushed and acknowledged.
absl::Status RunAssign() {
  return RunActors("assign", "assign", absl::GetFlag(FLAGS_tasks), TinyRollouts());
}

absl::Status RunPush() {
  const std::vector<ColumnShape> columns = PlainColumns();
  const auto tokens =
      static_cast<uint32_t>(absl::GetFlag(FLAGS_rollout_bytes)) / BytesPerToken(columns);
  if (tokens < 4) return absl::InvalidArgumentError("--rollout_bytes is too small");
  ActorLoad load;
  load.window = static_cast<uint32_t>(absl::GetFlag(FLAGS_window));
  load.batch = std::min(load.window * 2, 64u);
  // Together larger than the caches.
  constexpr size_t kDistinctBytes = size_t{96} << 20;
  const size_t rollout_bytes = size_t{tokens} * BytesPerToken(columns);
  for (size_t bytes = 0; bytes < kDistinctBytes; bytes += rollout_bytes) {
    const double reward = absl::GetFlag(FLAGS_keep) ? 1 + load.rollouts.size() % 2 : 1;
    load.rollouts.emplace_back(tokens, columns, SharedPayload(rollout_bytes), reward);
  }
  return RunActors("push", "push", 1000, std::move(load));
}

absl::Status RunFetch() {
  auto options = OptionsFromFlags();
  if (!options.ok()) return options.status();
  Daemon daemon(options->target);
  const auto stage_layers = static_cast<uint32_t>(absl::GetFlag(FLAGS_stage_layers));
  auto load =
      PrepareStep(&daemon, options->target, static_cast<uint32_t>(absl::GetFlag(FLAGS_tokens)),
                  static_cast<uint32_t>(absl::GetFlag(FLAGS_micro_batches)),
                  stage_layers > 0 ? RoutedColumns() : FiveColumns());
  if (!load.ok()) return load.status();
  if (stage_layers > 0) TakeStage(stage_layers, &*load);
  load->window = static_cast<uint32_t>(absl::GetFlag(FLAGS_window));
  return Report("fetch", *options, RunLoad(*options, [&](int) {
                  return std::make_unique<FetchConversation>(&*load);
                }));
}

// Each connection is an actor; without --script at a daemon.
absl::Status RunSwarmOfActors() {
  SwarmOptions options{.target = absl::GetFlag(FLAGS_target),
                       .connections = absl::GetFlag(FLAGS_channels),
                       .seconds = absl::GetFlag(FLAGS_seconds),
                       .renew_seconds = absl::GetFlag(FLAGS_renew_seconds),
                       .turn_seconds = absl::GetFlag(FLAGS_turn_seconds),
                       .server_pid = absl::GetFlag(FLAGS_server_pid),
                       .script = absl::GetFlag(FLAGS_script)};
  if (options.script.empty()) {
    const auto group_size = static_cast<uint32_t>(absl::GetFlag(FLAGS_group_size));
    if (absl::Status s = Daemon(options.target)
                             .PutTasks("swarm", group_size, absl::GetFlag(FLAGS_tasks), kTaskBytes);
        !s.ok()) {
      return s;
    }
  }
  auto result = RunSwarm(options);
  if (!result.ok()) return result.status();
  std::puts(ToJson(*result).c_str());
  return absl::OkStatus();
}

// "assignment 12.345678": what came, and when by the monotonic clock, in seconds.
absl::Status RunSteady() {
  auto steady = Steady::Open({.target = absl::GetFlag(FLAGS_target)});
  if (!steady.ok()) return steady.status();
  std::thread input([&] {
    while (std::getchar() != EOF) {
    }
    (*steady)->Stop();
  });
  const absl::Status status = (*steady)->Run([](std::string_view what, int64_t at_ns) {
    std::printf("%s %.6f\n", std::string(what).c_str(), static_cast<double>(at_ns) * 1e-9);
    std::fflush(stdout);
  });
  if (!status.ok()) {
    std::fprintf(stderr, "buffer-bench: %s\n", status.ToString().c_str());
    std::_Exit(1);  // the other thread waits for its input
  }
  input.join();
  return status;
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "buffer-bench SUBCOMMAND [flags]; \"buffer-bench help\" names the subcommands");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const std::map<std::string, std::function<absl::Status()>> subcommands = {
      {"limit", RunLimit},         {"assign", RunAssign}, {"push", RunPush},    {"fetch", RunFetch},
      {"swarm", RunSwarmOfActors}, {"steady", RunSteady}, {"replay", RunReplay}};
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
