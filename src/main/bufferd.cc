// The daemon: reads its configuration, serves, and comes to a clean end on SIGTERM or SIGINT.
//
// Exit codes: 0 after a clean end, 2 for a wrong configuration, 3 when it cannot serve (a port is
// taken), 4 when the end was cut short by a second signal, a signal during the start or a store
// that hangs, 5 when a log has failed (its disk is full or broken).
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "node/config.h"
#include "server/daemon.h"
#include "server/log.h"
#include "server/version.h"

namespace forebay {
namespace {

constexpr int kBadConfiguration = 2;
constexpr int kCannotServe = 3;
constexpr int kCutOff = 4;
// A start that is nearly done comes to its end, and then to a clean one.
constexpr absl::Duration kStartGrace = absl::Seconds(2);
std::vector<std::string>* started_with = nullptr;  // name and arguments

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

// A descriptor for each connection: the soft limit of 1,024 that shells give is for programs that
// use select. A listener that once found no descriptor free takes no connection any more (gRPC).
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    server::Log(server::LogLevel::kWarning, "the limit of open files could not be raised");
  }
}

void WaitForEnd(const sigset_t& signals) {
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
}

// Takes the signals that end the process, on a thread that nobody joins. The first one ends what
// Await waits for. One during a start that takes long, and any second one, end the process whatever
// it waits for: what was acknowledged is safe.
class EndSignals {
 public:
  explicit EndSignals(const sigset_t& signals) {
    std::thread([this, signals] { Take(signals); }).detach();
  }
  void Serves(const server::Daemon* daemon) {
    MutexLock lock(&mutex_);
    daemon_ = daemon;
    changed_.NotifyAll();
  }
  void Await() { first_.Wait(); }
  // Before the daemon is taken down, so that it is not asked any more.
  void Forget() { Serves(nullptr); }

 private:
  void Take(const sigset_t& signals) {
    WaitForEnd(signals);
    if (!AwaitServing(DeadlineIn(kStartGrace))) {
      server::Log(server::LogLevel::kWarning, "a signal ended the start");
      _exit(kCutOff);
    }
    first_.Notify();
    WaitForEnd(signals);
    MutexLock lock(&mutex_);
    if (daemon_ != nullptr) daemon_->LogCutOff();
    _exit(kCutOff);
  }

  bool AwaitServing(Deadline deadline) {
    MutexLock lock(&mutex_);
    while (daemon_ == nullptr && changed_.WaitUntil(&mutex_, deadline)) {
    }
    return daemon_ != nullptr;
  }

  Mutex mutex_;
  CondVar changed_;
  const server::Daemon* daemon_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Notification first_;
};

// The same program with the same arguments, in the same process; what it had open is closed.
[[noreturn]] void BeginAnew() {
  std::vector<char*> arguments;
  for (std::string& argument : *started_with) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
  server::Log(server::LogLevel::kError, "the process could not begin anew", {{"errno", errno}});
  _exit(kCutOff);
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
  const sigset_t blocked = BlockEndSignals();
  server::StartLog(line->config.log_level, line->config.log_format);
  RaiseFileLimit();
  static auto& signals = *new EndSignals(blocked);  // its thread outlives all else
  auto daemon = server::Daemon::Start(line->config, BeginAnew);
  if (!daemon.ok()) {
    std::fprintf(stderr, "bufferd: %s\n", std::string(daemon.status().message()).c_str());
    return daemon.status().code() == absl::StatusCode::kInvalidArgument ? kBadConfiguration
                                                                        : kCannotServe;
  }
  signals.Serves(daemon->get());
  signals.Await();
  const server::Daemon::End end = (*daemon)->Drain();
  signals.Forget();
  if (end == server::Daemon::End::kHandedOver) _exit(0);
  if (end == server::Daemon::End::kHangs) _exit(kCutOff);
  daemon->reset();
  return 0;
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  forebay::started_with = new std::vector<std::string>(argv, argv + argc);
  return forebay::Main({argv + 1, argv + argc});
}
