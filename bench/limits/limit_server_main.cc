// limit-server: the bare server of bench/limits as a program. Prints one line of JSON when it
// listens.

#include <absl/flags/flag.h>
#include <absl/flags/parse.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/limits/limit_server.h"
#include "bench/load/channel_arguments.h"

ABSL_FLAG(std::vector<std::string>, listen, {"127.0.0.1:0"},
          "addresses, e.g. 127.0.0.1:0 or unix:/tmp/limit.sock");
ABSL_FLAG(bool, minimal_stack, true, "leave out gRPC's filters");
ABSL_FLAG(std::vector<std::string>, channel_arguments, {},
          "gRPC channel arguments to try, name=integer");
ABSL_FLAG(bool, bandwidth_probe, false, "let gRPC widen its receive window");
ABSL_FLAG(bool, die_with_parent, false, "end when the process that started this one ends");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_die_with_parent)) prctl(PR_SET_PDEATHSIG, SIGTERM);
  forebay::bench::LimitServerOptions options;
  options.addresses = absl::GetFlag(FLAGS_listen);
  options.minimal_stack = absl::GetFlag(FLAGS_minimal_stack);
  options.bandwidth_probe = absl::GetFlag(FLAGS_bandwidth_probe);
  auto arguments = forebay::bench::ParseChannelArguments(absl::GetFlag(FLAGS_channel_arguments));
  if (!arguments.ok()) {
    std::fprintf(stderr, "limit-server: %s\n", arguments.status().ToString().c_str());
    return 2;
  }
  options.arguments = *std::move(arguments);
  auto server = forebay::bench::LimitServer::Start(options);
  if (!server.ok()) {
    std::fprintf(stderr, "limit-server: %s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("{\"port\": %d, \"pid\": %d}\n", (*server)->port(), static_cast<int>(getpid()));
  std::fflush(stdout);
  (*server)->Run();  // until a signal ends the process: it has nothing to save
  return 0;
}
