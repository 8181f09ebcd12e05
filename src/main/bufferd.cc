// The daemon: reads its configuration, serves, and comes to a clean end on SIGTERM or SIGINT.
//
// Exit codes: 0 after a clean end, 2 for a wrong configuration, 3 when it cannot serve (a port is
// taken), 4 when a second signal cut the end short, 5 when a log
// has failed (its disk is full or broken).
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "node/config.h"
#include "server/daemon.h"
#include "server/log.h"
#include "server/version.h"

namespace forebay {
namespace {

constexpr int kBadConfiguration = 2;
constexpr int kCannotServe = 3;
constexpr int kCutOff = 4;

// Blocked before any thread begins, so that only WaitForEnd sees them.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // an errno like others
  return signals;
}

void WaitForEnd(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
}

// A second signal ends the process at once, whatever the drain waits for. `busy` is held while the
// daemon is taken down and cannot be asked any more.
void EndAtNextSignal(const sigset_t& signals, const server::Daemon* daemon, std::mutex* busy) {
  std::thread([signals, daemon, busy] {
    WaitForEnd(signals);
    if (busy->try_lock()) daemon->LogCutOff();
    _exit(kCutOff);
  }).detach();
}

int Main(const std::vector<std::string>& arguments) {
  // Debian builds Abseil so that each lock looks for cycles of locks; the tests do that.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto line = node::ParseCommandLine(arguments);
  if (!line.ok()) {
    std::fprintf(stderr, "bufferd: %s\n", std::string(line.status().message()).c_str());
    return kBadConfiguration;
  }
  if (line->version) {
    std::printf("bufferd %s\n", server::kVersion);
    return 0;
  }
  if (line->help) {
    std::printf("bufferd [--config FILE] [--ENTRY=VALUE ...]   also: --help, --version\n\n%s",
                node::ConfigHelp().c_str());
    return 0;
  }
  const sigset_t signals = BlockEndSignals();
  server::StartLog(line->config.log_level, line->config.log_format);
  auto daemon = server::Daemon::Start(line->config);
  if (!daemon.ok()) {
    std::fprintf(stderr, "bufferd: %s\n", std::string(daemon.status().message()).c_str());
    return daemon.status().code() == absl::StatusCode::kInvalidArgument ? kBadConfiguration
                                                                        : kCannotServe;
  }
  WaitForEnd(signals);
  static std::mutex busy;  // outlives the thread that waits for the second signal
  EndAtNextSignal(signals, daemon->get(), &busy);
  (*daemon)->Drain();
  busy.lock();
  daemon->reset();
  return 0;
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) { return forebay::Main({argv + 1, argv + argc}); }
