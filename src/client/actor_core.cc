#include "client/actor_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/messages.h"
#include "client/version.h"

namespace forebay::client {
namespace {

constexpr absl::Duration kPollMax = absl::Seconds(20);
// How much longer than the daemon waits the call may take.
constexpr absl::Duration kGrace = absl::Milliseconds(500);
constexpr absl::Duration kLockLook = absl::Milliseconds(50);
constexpr absl::Duration kRetryMin = absl::Milliseconds(20);

// A result that another thread delivers.
template <class T>
class Waiter {
 public:
  void Set(T value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    changed_.notify_all();
  }
  T Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return value_.has_value(); });
    return *std::move(value_);
  }

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<T> value_;
};

// Registers an act with a cancellation, and forgets it when the work is over, whichever comes
// first.
class Registration {
 public:
  void Begin(Cancellation* cancellation, std::function<void()> act) {
    if (cancellation == nullptr) return;
    const uint64_t id = cancellation->OnCancel(std::move(act));
    {
      const std::lock_guard lock(mutex_);
      if (!over_) {
        cancellation_ = cancellation;
        id_ = id;
        return;
      }
    }
    cancellation->Forget(id);
  }
  void End() {
    Cancellation* cancellation = nullptr;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      cancellation = std::exchange(cancellation_, nullptr);
    }
    if (cancellation != nullptr) cancellation->Forget(id_);
  }

 private:
  std::mutex mutex_;  // guards all below
  bool over_ = false;
  Cancellation* cancellation_ = nullptr;
  uint64_t id_ = 0;
};

// Whether the daemon has decided about a request; else it may have acted without being heard.
bool Answered(const absl::Status& status) {
  return !(MayRetry(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) ||
           absl::IsInternal(status) || absl::IsUnknown(status));
}

}  // namespace

ActorCore::ActorCore(Connection* c, const ActorOptions& o, uint64_t s,
                     const v1::OpenSessionResponse& opened)
    : connection(c),
      options(o),
      session(s),
      rollout_bytes_max(opened.rollout_bytes_max()),
      run(opened.run()),
      leases(c, s, absl::Milliseconds(std::max(1u, opened.renew_interval_ms()))),
      policy(c, s, o.on_policy),
      version(FromWire(opened.version().version())),
      pushes_(c, "Push", s, opened.frame_bytes_max()),
      groups_(c, "PushGroup", s, opened.frame_bytes_max()) {}

absl::StatusOr<v1::OpenSessionResponse> ActorCore::OpenSession(Connection* connection,
                                                               const ActorOptions& options,
                                                               uint64_t session,
                                                               const CallOptions& call) {
  v1::OpenSessionRequest request;
  request.set_session(session);
  request.set_actor(options.actor);
  request.set_engine(options.engine);
  request.set_site(options.site);
  request.set_client(kClientName);
  return CallTyped<v1::OpenSessionResponse>(connection, "/forebay.v1.ActorService/OpenSession",
                                            request, call);
}

absl::Status ActorCore::Reopen(const CallOptions& call) {
  auto opened = OpenSession(connection, options, session, call);
  if (!opened.ok()) return opened.status();
  // Another run knows nothing of what this actor holds.
  if (run.exchange(opened->run()) != opened->run()) leases.StopAll("lease_lost");
  return absl::OkStatus();
}

absl::StatusOr<v1::AcquireResponse> ActorCore::AskOnce(uint32_t max, absl::Time deadline,
                                                       Cancellation* cancellation) {
  while (!acquire_mutex_.try_lock_until(
      absl::ToChronoTime(std::min(deadline, absl::Now() + kLockLook)))) {
    if (cancellation->cancelled()) return absl::CancelledError("cancelled by the caller");
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("another call acquires");
  }
  const std::lock_guard lock(acquire_mutex_, std::adopt_lock);
  if (answered_) ++request_id_;
  answered_ = false;
  v1::AcquireRequest request;
  request.set_session(session);
  request.set_request_id(request_id_);
  request.set_max(max);
  request.mutable_sources()->Add(options.sources.begin(), options.sources.end());
  {
    const std::lock_guard version_lock(version_mutex);
    ToWire(version, request.mutable_version());
  }
  request.set_loads_any_version(options.loads_any_version);
  const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
  request.set_wait_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(std::min(left, kPollMax))));
  auto response =
      CallTyped<v1::AcquireResponse>(connection, "/forebay.v1.ActorService/Acquire", request,
                                     {.timeout = left + kGrace, .cancellation = cancellation});
  answered_ = response.ok() || Answered(response.status());
  return response;
}

absl::Status ActorCore::Acquire(uint32_t max, absl::Time deadline, Cancellation* cancellation,
                                std::vector<Handout>* handouts, std::string* reason) {
  // Ends with the caller's cancellation or with the actor's.
  Cancellation either;
  Registration own, callers;
  own.Begin(&closing, [&either] { either.Cancel(); });
  callers.Begin(cancellation, [&either] { either.Cancel(); });
  absl::Status status;
  bool reopened = false;
  while (true) {
    auto response = AskOnce(max, deadline, &either);
    if (!response.ok()) {
      status = response.status();
      // The daemon was started anew, or has forgotten a silent session.
      if (absl::IsNotFound(status) && !std::exchange(reopened, true) &&
          Reopen({.timeout = deadline - absl::Now() + kGrace, .cancellation = &either}).ok()) {
        continue;
      }
      break;
    }
    status = absl::OkStatus();
    *reason = response->reason();
    Unpack(&*response, handouts);
    if (!handouts->empty() || absl::Now() >= deadline) break;
    // The daemon answered before the time was over: it wants to be asked again later.
    const absl::Duration pause =
        std::max(kRetryMin, absl::Milliseconds(response->retry_after_ms()));
    if (!Pause(std::min(pause, deadline - absl::Now()), &either)) {
      status = absl::CancelledError("cancelled by the caller");
      break;
    }
  }
  callers.End();
  own.End();
  return status;
}

namespace {

std::shared_ptr<const Partial> UnpackPartial(v1::Assignment* assignment) {
  if (!assignment->has_partial()) return nullptr;
  auto partial = std::make_shared<Partial>();
  partial->payload = std::move(*assignment->mutable_partial()->mutable_payload());
  auto rollout = FromWire(assignment->partial().header(), partial->payload);
  // A prefix that cannot be read costs the prefix, not the attempt.
  if (!rollout.ok()) return nullptr;
  partial->rollout = *std::move(rollout);
  return partial;
}

}  // namespace

void ActorCore::Unpack(v1::AcquireResponse* response, std::vector<Handout>* handouts) {
  for (auto& a : *response->mutable_assignments()) {
    auto info = std::make_unique<AssignmentInfo>();
    info->attempt_id = a.attempt_id();
    info->seed = a.seed();
    info->group_id = a.group_id();
    info->attempt = a.attempt();
    for (const auto& source : response->sources()) {
      if (source.source() != a.source()) continue;
      info->source = source.name();
      info->sampling_json = source.sampling_json();
      info->eval = source.purpose() == v1::PURPOSE_EVAL;
    }
    info->eval_run = a.eval_run();
    info->version = {.branch = a.branch(), .number = a.version()};
    info->external_id = a.external_id();
    info->task_id = a.task_id();
    info->payload = std::move(*a.mutable_payload());
    info->attributes = std::move(*a.mutable_attributes());
    info->partial = UnpackPartial(&a);
    auto lease = std::make_shared<LeaseState>(a.attempt_id(), a.token());
    leases.Add(lease, absl::Milliseconds(a.lease_ms()));
    handouts->push_back({std::move(lease), std::move(info)});
  }
}

void ActorCore::Settle(const std::shared_ptr<LeaseState>& lease,
                       const absl::StatusOr<PushReceipt>& receipt) {
  if (receipt.ok()) leases.Remove(*lease);
  if (lease->pushing.fetch_sub(1) == 1 && lease->orphaned.load()) leases.Drop(*lease);
}

void ActorCore::Push(const std::shared_ptr<LeaseState>& lease, const Rollout& rollout, bool partial,
                     const CallOptions& call, Assignment::PushDone done) {
  const UsageMeter::Scope scope(&connection->meter());
  v1::RolloutHeader header;
  ToWire(rollout, &header);
  header.set_attempt_id(lease->attempt_id);
  header.set_token(lease->token);
  header.set_partial(partial);
  // As in reports of adoption, an engine without a name goes by its actor's.
  if (header.engine().empty()) {
    header.set_engine(options.engine.empty() ? options.actor : options.engine);
  }
  auto encoded = EncodeChecked(header);
  if (!encoded.ok()) return done(encoded.status());
  lease->pushing.fetch_add(1);
  auto registration = std::make_shared<Registration>();
  PushQueue::Item item{.headers = {*std::move(encoded)},
                       .deadline = absl::Now() + connection->LongTimeout(call)};
  for (const Column* column : SentColumns(rollout)) item.payload.push_back(column->bytes);
  item.done = [this, lease, registration,
               done = std::move(done)](absl::StatusOr<PushQueue::Outcomes> outcomes) {
    registration->End();
    absl::StatusOr<PushReceipt> receipt =
        outcomes.ok() ? ReceiptOf(outcomes->at(0)) : absl::StatusOr<PushReceipt>(outcomes.status());
    Settle(lease, receipt);
    done(std::move(receipt));
  };
  const uint64_t ticket = pushes_.Add(std::move(item));
  registration->Begin(call.cancellation, [this, ticket] {
    pushes_.Abandon(ticket, absl::CancelledError("cancelled by the caller"));
  });
}

absl::StatusOr<PushReceipt> ActorCore::PushAndWait(const std::shared_ptr<LeaseState>& lease,
                                                   const Rollout& rollout, bool partial,
                                                   const CallOptions& call) {
  auto waiter = std::make_shared<Waiter<absl::StatusOr<PushReceipt>>>();
  Push(lease, rollout, partial, call,
       [waiter](absl::StatusOr<PushReceipt> receipt) { waiter->Set(std::move(receipt)); });
  return waiter->Take();
}

absl::StatusOr<PushQueue::Outcomes> ActorCore::PushGroup(const PushedGroup& group,
                                                         const CallOptions& call) {
  v1::GroupHeader group_header;
  group_header.set_source(group.source);
  group_header.set_external_id(group.external_id);
  group_header.set_payload(group.task_payload);
  group_header.set_request_id(group.request_id);
  PushQueue::Item item{.group = group_header.SerializeAsString(),
                       .deadline = absl::Now() + connection->LongTimeout(call)};
  for (size_t i = 0; i < group.rollouts.size(); ++i) {
    v1::RolloutHeader header;
    ToWire(group.rollouts[i], &header);
    auto encoded = EncodeChecked(header);
    if (!encoded.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rollouts[", i, "].", std::string(encoded.status().message())));
    }
    item.headers.push_back(*std::move(encoded));
    for (const Column* column : SentColumns(group.rollouts[i])) {
      item.payload.push_back(column->bytes);
    }
  }
  if (item.headers.empty()) return absl::InvalidArgumentError("rollouts: a group needs some");
  auto waiter = std::make_shared<Waiter<absl::StatusOr<PushQueue::Outcomes>>>();
  item.done = [waiter](absl::StatusOr<PushQueue::Outcomes> outcomes) {
    waiter->Set(std::move(outcomes));
  };
  const uint64_t ticket = groups_.Add(std::move(item));
  Registration registration;
  registration.Begin(call.cancellation, [this, ticket] {
    groups_.Abandon(ticket, absl::CancelledError("cancelled by the caller"));
  });
  auto outcomes = waiter->Take();
  registration.End();
  return outcomes;
}

}  // namespace forebay::client
