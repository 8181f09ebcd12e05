// What an Actor and its Assignments share: the session, the leases, the push streams.
//
// Thread-safe. The connection outlives it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/leases.h"
#include "client/policy_watch.h"
#include "client/push_queue.h"
#include "forebay/actor.h"
#include "forebay/v1/actor.pb.h"

namespace forebay::client {

// An assignment that came and was not taken by anybody yet.
struct Handout {
  std::shared_ptr<LeaseState> lease;
  std::unique_ptr<const AssignmentInfo> info;
};

class ActorCore {
 public:
  ActorCore(Connection* connection, const ActorOptions& options, uint64_t session,
            const v1::OpenSessionResponse& opened);

  // Opens the session, or the same session again.
  static absl::StatusOr<v1::OpenSessionResponse> OpenSession(Connection* connection,
                                                             const ActorOptions& options,
                                                             uint64_t session,
                                                             const CallOptions& call);

  // Waits until there is something, or the time is over (then `handouts` stays empty and `reason`
  // says why).
  absl::Status Acquire(uint32_t max, absl::Time deadline, Cancellation* cancellation,
                       std::vector<Handout>* handouts, std::string* reason);

  // Adds to the push stream and returns at once; `done` runs once.
  void Push(const std::shared_ptr<LeaseState>& lease, const Rollout& rollout, bool partial,
            const CallOptions& options, Assignment::PushDone done);
  absl::StatusOr<PushReceipt> PushAndWait(const std::shared_ptr<LeaseState>& lease,
                                          const Rollout& rollout, bool partial,
                                          const CallOptions& options);
  absl::StatusOr<PushQueue::Outcomes> PushGroup(const PushedGroup& group,
                                                const CallOptions& options);

  template <class Response, class Request>
  absl::StatusOr<Response> Call(const char* method, const Request& request,
                                const CallOptions& options) {
    return CallTyped<Response>(connection, method, request, options);
  }

  Connection* const connection;
  const ActorOptions options;
  const uint64_t session;
  const uint64_t rollout_bytes_max;
  std::atomic<uint64_t> run;
  Cancellation closing;  // what waits for assignments
  Leases leases;
  PolicyWatch policy;

  std::mutex version_mutex;  // guards version
  PolicyVersion version;     // that the engine holds

  // Held while asking for more, so that one asks for all; guards `ready`.
  std::timed_mutex next_mutex;
  std::deque<Handout> ready;  // fetched by Next, not handed out

 private:
  // One answer of the daemon; a request whose answer was lost is asked again.
  absl::StatusOr<v1::AcquireResponse> AskOnce(uint32_t max, absl::Time deadline,
                                              Cancellation* cancellation);
  absl::Status Reopen(const CallOptions& call);
  void Unpack(v1::AcquireResponse* response, std::vector<Handout>* handouts);
  // What the result of a push means for the lease.
  void Settle(const std::shared_ptr<LeaseState>& lease, const absl::StatusOr<PushReceipt>& receipt);

  std::timed_mutex acquire_mutex_;  // held during a call; guards the two below
  uint64_t request_id_ = 0;
  bool answered_ = true;
  PushQueue pushes_;
  PushQueue groups_;
};

}  // namespace forebay::client
