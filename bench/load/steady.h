// A light load that goes on while the lead of a cluster moves: an actor that acquires and pushes,
// and a trainer's rank that fetches the micro-batch of a sealed step again and again.
//
// Through the client library, since how it finds the new leader is part of what is measured. Each
// assignment and each fetched micro-batch is told as it comes, with the time of the monotonic clock
// that all processes of a machine share. Open, Run and the destructor on one thread.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/sync.h"
#include "forebay/actor.h"
#include "forebay/client.h"
#include "forebay/rollout.h"
#include "forebay/trainer.h"

namespace forebay::bench {

struct SteadyOptions {
  std::string target;                            // seeds with commas between them
  uint32_t tasks = 1000;                         // of the source, in turn
  uint32_t tokens = 64;                          // of a rollout
  absl::Duration pause = absl::Milliseconds(2);  // between two assignments, and two fetches
  absl::Duration timeout = absl::Seconds(60);    // of every call
};

class Steady {
 public:
  // "assignment" or "fetch", and when it had come, in nanoseconds. On threads of Run.
  using Told = std::function<void(std::string_view what, int64_t at_ns)>;

  // With the step sealed.
  static absl::StatusOr<std::unique_ptr<Steady>> Open(const SteadyOptions& options);
  // Until Stop, or until a call fails: why it did.
  absl::Status Run(const Told& told);
  // From any thread.
  void Stop();

 private:
  explicit Steady(const SteadyOptions& options);
  absl::Status Prepare();
  client::Rollout RolloutOf(double reward) const;
  void Act(const Told& told);
  void Fetch(const Told& told);
  absl::Status FetchOnce();
  // Asks all to end; the first reason stays.
  void End(absl::Status why);

  const SteadyOptions options_;
  std::vector<uint32_t> tokens_;
  std::vector<uint8_t> mask_;
  std::vector<float> logprobs_;
  Notification stop_;
  Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);

  // Their threads take part of the above.
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<client::Actor> actor_;
  std::unique_ptr<client::Trainer> trainer_;
  std::unique_ptr<client::Step> step_;
};

}  // namespace forebay::bench
