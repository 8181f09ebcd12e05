#include "bench/load/swarm.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "bench/load/conversation.h"
#include "bench/load/cpu.h"
#include "bench/load/script.h"
#include "bench/load/swarm_actor.h"

namespace forebay::bench {
namespace {

constexpr uint32_t kTokens = 16;
constexpr size_t kConnectingAtOnce = 128;
constexpr rlim_t kOtherFiles = 256;  // beside the connections

SwarmClock::duration Duration(double seconds) {
  return std::chrono::duration_cast<SwarmClock::duration>(std::chrono::duration<double>(seconds));
}

double Seconds(SwarmClock::duration time) { return std::chrono::duration<double>(time).count(); }

absl::Status AllowFiles(int connections) {
  rlimit limit{};
  const rlim_t needed = static_cast<rlim_t>(connections) + kOtherFiles;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= needed) return absl::OkStatus();
  limit.rlim_cur = std::max(limit.rlim_cur, needed);
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(connections, " connections need ", needed,
                                                   " open files, of which ", limit.rlim_max,
                                                   " are allowed: ", std::strerror(errno)));
}

// Says when the next actor's turn is; each comes once in `period`, in order.
class Rota {
 public:
  Rota(SwarmClock::time_point begin, double period, size_t actors)
      : begin_(begin), interval_(period / static_cast<double>(actors)), actors_(actors) {}

  SwarmClock::time_point due() const {
    return begin_ + Duration(interval_ * static_cast<double>(said_ + 1));
  }
  size_t Take() { return said_++ % actors_; }

 private:
  const SwarmClock::time_point begin_;
  const double interval_;
  const size_t actors_;
  uint64_t said_ = 0;
};

class Swarm {
 public:
  explicit Swarm(const SwarmOptions& options)
      : options_(options),
        rollout_(kTokens, PlainColumns(), SharedPayload(kTokens * BytesPerToken(PlainColumns())),
                 1) {
    shared_.target = options.target;
    shared_.queue = &queue_;
    shared_.rollout = &rollout_;
  }

  ~Swarm() {
    for (auto& actor : actors_) actor->Cancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::Status FollowScript();
  absl::StatusOr<SwarmResult> Run();

 private:
  absl::Status Connect();
  absl::Status Phase(bool with_turns, double* server_cpu);
  absl::Status AwaitQuiet();
  // One event, if one comes before `until`.
  absl::Status PollOnce(SwarmClock::time_point until);
  absl::Status Visit(SwarmActor* actor, bool (SwarmActor::*say)());
  SwarmLatency Latency(SwarmWord word);
  std::string Script() const;
  double ServerCpu() const {
    return options_.server_pid == 0 ? 0 : ProcessCpuSeconds(options_.server_pid);
  }
  uint64_t ServerResident() const {
    return options_.server_pid == 0 ? 0 : ResidentBytes(options_.server_pid);
  }

  const SwarmOptions options_;
  const RolloutTemplate rollout_;
  grpc::CompletionQueue queue_;
  SwarmShared shared_;
  std::vector<std::unique_ptr<SwarmActor>> actors_;
  uint64_t skipped_ = 0;
};

absl::Status Swarm::FollowScript() {
  if (options_.script.empty()) return absl::OkStatus();
  auto steps = ParseScript(options_.script);
  if (!steps.ok()) return steps.status();
  if (steps->size() != kSwarmWords) {
    return absl::InvalidArgumentError(
        "the script of a swarm has 4 steps: session, acquire, renew, push");
  }
  shared_.limit.emplace();
  for (size_t i = 0; i < kSwarmWords; ++i) {
    (*shared_.limit)[i] = {(*steps)[i].request_bytes, (*steps)[i].answer_bytes};
  }
  return absl::OkStatus();
}

absl::Status Swarm::PollOnce(SwarmClock::time_point until) {
  const auto wait = std::max(until - SwarmClock::now(), SwarmClock::duration::zero());
  void* tag = nullptr;
  bool ok = false;
  const auto got = queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + wait);
  if (got != grpc::CompletionQueue::GOT_EVENT) return absl::OkStatus();
  const auto* event = static_cast<SwarmActor::Event*>(tag);
  return (event->actor->*event->handle)(ok);
}

// A bounded number at once: a listening socket has a queue of its own.
absl::Status Swarm::Connect() {
  std::random_device random;
  const uint64_t first = (uint64_t{random()} << 32 | 1);
  const auto until = SwarmClock::now() + Duration(options_.connect_seconds);
  const auto wanted = static_cast<size_t>(options_.connections);
  std::vector<SwarmActor*> connecting;
  size_t ready = 0;
  while (ready < wanted) {
    while (connecting.size() < kConnectingAtOnce && actors_.size() < wanted) {
      actors_.push_back(std::make_unique<SwarmActor>(&shared_, first + actors_.size()));
      actors_.back()->Begin();
      connecting.push_back(actors_.back().get());
    }
    if (SwarmClock::now() > until) {
      return absl::DeadlineExceededError(
          absl::StrCat(ready, " of ", wanted, " connections in ", options_.connect_seconds, " s"));
    }
    if (absl::Status s = PollOnce(until); !s.ok()) return s;
    ready += std::erase_if(connecting, [](const SwarmActor* actor) { return actor->ready(); });
  }
  return absl::OkStatus();
}

absl::Status Swarm::Visit(SwarmActor* actor, bool (SwarmActor::*say)()) {
  const auto since = actor->waits_since();
  if (since.has_value() && SwarmClock::now() - *since > Duration(options_.answer_seconds)) {
    return absl::DeadlineExceededError(
        absl::StrCat("an actor has no answer for ", options_.answer_seconds, " s"));
  }
  if (!(actor->*say)()) ++skipped_;
  return absl::OkStatus();
}

absl::Status Swarm::Phase(bool with_turns, double* server_cpu) {
  for (SwarmShared::Tally& tally : shared_.tallies) tally.answered_ms.clear();
  const double cpu_before = ServerCpu();
  const auto begin = SwarmClock::now();
  const auto end = begin + Duration(options_.seconds);
  Rota renewals(begin, options_.renew_seconds, actors_.size());
  Rota turns(begin, options_.turn_seconds, actors_.size());
  for (auto now = begin; now < end; now = SwarmClock::now()) {
    for (; renewals.due() <= now;) {
      if (absl::Status s = Visit(actors_[renewals.Take()].get(), &SwarmActor::Renew); !s.ok())
        return s;
    }
    for (; with_turns && turns.due() <= now;) {
      if (absl::Status s = Visit(actors_[turns.Take()].get(), &SwarmActor::Turn); !s.ok()) return s;
    }
    const auto next = with_turns ? std::min(renewals.due(), turns.due()) : renewals.due();
    if (absl::Status s = PollOnce(std::min(next, end)); !s.ok()) return s;
  }
  if (absl::Status s = AwaitQuiet(); !s.ok()) return s;
  *server_cpu = ServerCpu() - cpu_before;
  return absl::OkStatus();
}

absl::Status Swarm::AwaitQuiet() {
  const auto until = SwarmClock::now() + Duration(options_.answer_seconds);
  for (const auto& actor : actors_) {
    while (!actor->quiet()) {
      if (SwarmClock::now() > until) {
        return absl::DeadlineExceededError("actors have no answer at the end of a phase");
      }
      if (absl::Status s = PollOnce(until); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

SwarmLatency Swarm::Latency(SwarmWord word) {
  std::vector<double>& times = shared_.tallies[word].answered_ms;
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100], times.back(), times.size()};
}

std::string Swarm::Script() const {
  std::string script;
  for (size_t word = 0; word < kSwarmWords; ++word) {
    const SwarmShared::Tally& tally = shared_.tallies[word];
    const uint64_t said = std::max<uint64_t>(1, tally.said);
    absl::StrAppend(&script, word == 0 ? "" : " ",
                    word == kSwarmPush ? "store:" : "unary:", tally.request_bytes / said, ">",
                    tally.answer_bytes / said);
  }
  return script;
}

absl::StatusOr<SwarmResult> Swarm::Run() {
  SwarmResult result;
  result.connections = options_.connections;
  result.resident_bytes_before = ServerResident();
  const auto begin = SwarmClock::now();
  if (absl::Status s = Connect(); !s.ok()) return s;
  result.connect_seconds = Seconds(SwarmClock::now() - begin);
  result.resident_bytes_ready = ServerResident();
  const double client_before = OwnCpuSeconds();
  if (absl::Status s = Phase(false, &result.renewing_cpu_seconds); !s.ok()) return s;
  result.renewals = Latency(kSwarmRenew);
  if (absl::Status s = Phase(true, &result.turning_cpu_seconds); !s.ok()) return s;
  result.acquires = Latency(kSwarmAcquire);
  result.renewals_beside = Latency(kSwarmRenew).answers;
  result.client_cpu_seconds = OwnCpuSeconds() - client_before;
  result.resident_bytes_after = ServerResident();
  result.skipped = skipped_;
  result.script = Script();
  return result;
}

}  // namespace

absl::StatusOr<SwarmResult> RunSwarm(const SwarmOptions& options) {
  if (options.connections < 1 || options.seconds <= 0 || options.renew_seconds <= 0 ||
      options.turn_seconds <= 0) {
    return absl::InvalidArgumentError("a swarm has connections, and times above 0");
  }
  if (absl::Status s = AllowFiles(options.connections); !s.ok()) return s;
  Swarm swarm(options);
  if (absl::Status s = swarm.FollowScript(); !s.ok()) return s;
  return swarm.Run();
}

std::string ToJson(const SwarmResult& r) {
  const auto per_connection = [&](uint64_t bytes) {
    return (static_cast<double>(bytes) - static_cast<double>(r.resident_bytes_before)) /
           r.connections;
  };
  const auto per = [](double seconds, uint64_t count) {
    return seconds / std::max<double>(1, static_cast<double>(count)) * 1e6;
  };
  return absl::StrFormat(
      "{\"name\": \"swarm\", \"script\": \"%s\", \"connections\": %d, \"connect_seconds\": %.3f, "
      "\"server_bytes_per_connection\": %.0f, \"server_bytes_per_connection_after\": %.0f, "
      "\"renewals\": %d, \"server_cpu_us_per_renewal\": %.3f, \"renew_median_ms\": %.3f, "
      "\"renew_p99_ms\": %.3f, \"renew_worst_ms\": %.3f, \"acquires\": %d, "
      "\"acquire_median_ms\": %.3f, \"acquire_p99_ms\": %.3f, \"acquire_worst_ms\": %.3f, "
      "\"renewals_beside\": %d, \"turning_server_cpu_s\": %.3f, \"client_cpu_s\": %.3f, "
      "\"skipped\": %d}",
      r.script, r.connections, r.connect_seconds, per_connection(r.resident_bytes_ready),
      per_connection(r.resident_bytes_after), r.renewals.answers,
      per(r.renewing_cpu_seconds, r.renewals.answers), r.renewals.median_ms, r.renewals.p99_ms,
      r.renewals.worst_ms, r.acquires.answers, r.acquires.median_ms, r.acquires.p99_ms,
      r.acquires.worst_ms, r.renewals_beside, r.turning_cpu_seconds, r.client_cpu_seconds,
      r.skipped);
}

}  // namespace forebay::bench
