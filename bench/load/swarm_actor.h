// One of the many: an actor with a connection, a session, a lease and a push stream of its own.
//
// All actors of a swarm share a completion queue and the thread that polls it, which alone calls
// what is here. An actor lives until the queue has returned all its operations.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/rollout_template.h"

namespace forebay::bench {

using SwarmClock = std::chrono::steady_clock;

// What an actor says. Each is answered.
enum SwarmWord : size_t { kSwarmOpen, kSwarmAcquire, kSwarmRenew, kSwarmPush, kSwarmWords };

struct SwarmSizes {
  uint64_t request = 0, answer = 0;  // bytes
};
using SwarmScript = std::array<SwarmSizes, kSwarmWords>;

// What the actors of a swarm have in common.
struct SwarmShared {
  std::string target;
  grpc::CompletionQueue* queue = nullptr;
  const RolloutTemplate* rollout = nullptr;  // pushed by all
  // For the limit server, which is told how large its answers are; else they speak to a daemon.
  std::optional<SwarmScript> limit;

  struct Tally {
    std::vector<double> answered_ms;  // from each word to its answer
    uint64_t said = 0;                // and what was said since the beginning
    uint64_t request_bytes = 0, answer_bytes = 0;
  };
  std::array<Tally, kSwarmWords> tallies;
};

class SwarmActor {
 public:
  // What a completion-queue tag points to.
  struct Event {
    SwarmActor* actor;
    absl::Status (SwarmActor::*handle)(bool ok);
  };

  // `shared` outlives this.
  SwarmActor(SwarmShared* shared, uint64_t session);

  // Connects, opens a session, acquires an assignment and opens a push stream; then is ready.
  void Begin();
  // Holds a lease and waits for no answer but a renewal's.
  bool ready() const { return ready_; }
  bool quiet() const { return ready_ && !renewal_.busy; }
  // Renews the lease. False if there is none now, or the last renewal is not answered yet.
  bool Renew();
  // Pushes the rollout and acquires the next assignment; after the answer to a renewal that is
  // under way. False if the last turn has not ended.
  bool Turn();
  // Since when the oldest word has no answer; nothing if all have.
  std::optional<SwarmClock::time_point> waits_since() const;
  void Cancel();

 private:
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
    SwarmWord word = kSwarmOpen;
    SwarmClock::time_point since;
    bool busy = false;
  };

  void Say(Call* call, SwarmWord word, Event* done);
  void Push();
  grpc::ByteBuffer Message(SwarmWord word);
  std::string Encoded(SwarmWord word);
  absl::Status OnAnswer(bool ok);
  absl::Status OnRenewed(bool ok);
  absl::Status OnStarted(bool ok);
  absl::Status OnWritten(bool ok);
  absl::Status OnRead(bool ok);
  // Counts an answer, and reads it if a daemon gave it.
  absl::Status Take(SwarmWord word, SwarmClock::time_point since, grpc::ByteBuffer* answer);
  absl::Status Read(SwarmWord word, const grpc::Slice& answer);

  SwarmShared* const shared_;
  const uint64_t session_;
  std::unique_ptr<grpc::GenericStub> stub_;
  Call call_, renewal_;
  grpc::ClientContext push_context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> push_;
  grpc::ByteBuffer reply_;
  bool streaming_ = false;  // the push stream has begun
  std::optional<SwarmClock::time_point> pushed_at_;
  Lease lease_;
  uint64_t acquires_ = 0, frames_ = 0;
  bool ready_ = false, turn_wanted_ = false, cancelled_ = false;
  Event answered_{this, &SwarmActor::OnAnswer}, renewed_{this, &SwarmActor::OnRenewed},
      started_{this, &SwarmActor::OnStarted}, written_{this, &SwarmActor::OnWritten},
      read_{this, &SwarmActor::OnRead};
};

}  // namespace forebay::bench
