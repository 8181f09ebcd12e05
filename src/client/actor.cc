#include "forebay/actor.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/actor_core.h"
#include "client/messages.h"

namespace forebay::client {
namespace {

constexpr uint32_t kAcquireMax = 4096;
constexpr absl::Duration kLook = absl::Milliseconds(50);

uint64_t RandomId() {
  std::random_device random;
  uint64_t id = 0;
  while (id == 0) id = uint64_t{random()} << 32 | random();
  return id;
}

absl::Status Over(Cancellation* closing, Cancellation* callers) {
  if (closing->cancelled()) return absl::CancelledError("the actor is closed");
  if (callers != nullptr && callers->cancelled()) {
    return absl::CancelledError("cancelled by the caller");
  }
  return absl::OkStatus();
}

template <class Request>
Request LeaseRequest(const ActorCore& core, const LeaseState& lease) {
  Request request;
  request.set_session(core.session);
  request.add_attempt_ids(lease.attempt_id);
  request.add_tokens(lease.token);
  return request;
}

}  // namespace

Assignment::Assignment(std::shared_ptr<ActorCore> core, std::shared_ptr<LeaseState> lease,
                       std::unique_ptr<const AssignmentInfo> info)
    : core_(std::move(core)), lease_(std::move(lease)), info_(std::move(info)) {}

Assignment::Assignment(Assignment&&) noexcept = default;

Assignment& Assignment::operator=(Assignment&& other) noexcept {
  Assignment old(std::move(*this));
  core_ = std::move(other.core_);
  lease_ = std::move(other.lease_);
  info_ = std::move(other.info_);
  return *this;
}

Assignment::~Assignment() {
  if (lease_ == nullptr) return;
  lease_->orphaned.store(true);
  // A push under way decides instead.
  if (lease_->pushing.load() == 0) core_->leases.Drop(*lease_);
}

Cancellation& Assignment::stop() const { return lease_->stop; }
LeaseAction Assignment::action() const { return lease_->action.load(); }
std::string Assignment::reason() const { return lease_->reason(); }
void Assignment::SetProgress(uint32_t tokens) { lease_->generated_tokens.store(tokens); }

absl::StatusOr<PushReceipt> Assignment::Push(const Rollout& rollout, const CallOptions& options) {
  return core_->PushAndWait(lease_, rollout, false, options);
}

void Assignment::PushAsync(const Rollout& rollout, PushDone done, const CallOptions& options) {
  core_->Push(lease_, rollout, false, options, std::move(done));
}

absl::StatusOr<PushReceipt> Assignment::SavePartial(const Rollout& rollout,
                                                    const CallOptions& options) {
  return core_->PushAndWait(lease_, rollout, true, options);
}

absl::Status Assignment::Fail(const std::string& reason, const CallOptions& options) {
  auto request = LeaseRequest<v1::FailRequest>(*core_, *lease_);
  request.set_reason(reason);
  auto response = core_->Call<v1::FailResponse>("/forebay.v1.ActorService/Fail", request, options);
  if (response.ok()) core_->leases.Remove(*lease_);
  return response.status();
}

absl::Status Assignment::Release(const CallOptions& options) {
  const auto request = LeaseRequest<v1::ReleaseRequest>(*core_, *lease_);
  auto response =
      core_->Call<v1::ReleaseResponse>("/forebay.v1.ActorService/Release", request, options);
  if (response.ok()) core_->leases.Remove(*lease_);
  return response.status();
}

Actor::Actor(std::shared_ptr<ActorCore> core) : core_(std::move(core)) {}

absl::StatusOr<std::unique_ptr<Actor>> Actor::Open(Client* client, const ActorOptions& options,
                                                   const CallOptions& call) {
  if (options.slots == 0) return absl::InvalidArgumentError("slots: is 0, must be at least 1");
  const uint64_t session = RandomId();
  auto opened = ActorCore::OpenSession(client->connection(), options, session, call);
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<Actor>(
      new Actor(std::make_shared<ActorCore>(client->connection(), options, session, *opened)));
}

Actor::~Actor() { Close(); }

void Actor::Close() {
  core_->closing.Cancel();
  core_->leases.Close();
  core_->leases.StopAll("closing");
  const std::lock_guard lock(core_->next_mutex);
  for (const Handout& handout : core_->ready) core_->leases.Drop(*handout.lease);
  core_->ready.clear();
}

absl::StatusOr<Assignment> Actor::Next(const CallOptions& options) {
  const absl::Time deadline = absl::Now() + core_->connection->LongTimeout(options);
  std::string reason = "all slots are taken";
  while (true) {
    if (auto status = Over(&core_->closing, options.cancellation); !status.ok()) return status;
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("no assignment: ", reason));
    }
    const absl::Time look = std::min(deadline, absl::Now() + kLook);
    std::unique_lock lock(core_->next_mutex, std::defer_lock);
    if (!lock.try_lock_until(absl::ToChronoTime(look))) continue;
    if (core_->ready.empty()) {
      if (!core_->leases.AwaitBelow(core_->options.slots, kLook)) continue;
      const size_t held = core_->leases.size();
      const size_t free = core_->options.slots - std::min<size_t>(held, core_->options.slots);
      std::vector<Handout> handouts;
      auto status = core_->Acquire(static_cast<uint32_t>(std::clamp<size_t>(free, 1, kAcquireMax)),
                                   deadline, options.cancellation, &handouts, &reason);
      if (!status.ok()) return status;
      for (Handout& handout : handouts) core_->ready.push_back(std::move(handout));
      if (core_->ready.empty()) continue;
    }
    Handout handout = std::move(core_->ready.front());
    core_->ready.pop_front();
    if (handout.lease->action.load() != LeaseAction::kContinue) {
      // Useless before anybody began with it.
      core_->leases.Drop(*handout.lease);
      continue;
    }
    return Assignment(core_, std::move(handout.lease), std::move(handout.info));
  }
}

absl::StatusOr<AcquireResult> Actor::Acquire(uint32_t max, const CallOptions& options) {
  if (max == 0 || max > kAcquireMax) {
    return absl::InvalidArgumentError(absl::StrCat("max: is ", max, "; 1 to ", kAcquireMax));
  }
  std::vector<Handout> handouts;
  AcquireResult result;
  if (auto status = Over(&core_->closing, options.cancellation); !status.ok()) return status;
  auto status = core_->Acquire(max, absl::Now() + core_->connection->CallTimeout(options),
                               options.cancellation, &handouts, &result.reason);
  if (!status.ok()) return status;
  for (Handout& handout : handouts) {
    result.assignments.push_back(
        Assignment(core_, std::move(handout.lease), std::move(handout.info)));
  }
  return result;
}

absl::StatusOr<std::vector<PushReceipt>> Actor::PushGroup(const PushedGroup& group,
                                                          const CallOptions& options) {
  auto outcomes = core_->PushGroup(group, options);
  if (!outcomes.ok()) return outcomes.status();
  std::vector<PushReceipt> receipts;
  absl::Status refused;
  for (size_t i = 0; i < outcomes->size(); ++i) {
    auto receipt = ReceiptOf((*outcomes)[i]);
    if (receipt.ok()) {
      receipts.push_back(*std::move(receipt));
      continue;
    }
    // A wrong rollout names a field of its own, and refuses the others with it.
    const absl::string_view field = (*outcomes)[i].field();
    const bool of_group = field == "rollouts" || absl::StartsWith(field, "group");
    if (!of_group) {
      refused = absl::InvalidArgumentError(
          absl::StrCat("rollouts[", i, "].", std::string(receipt.status().message())));
      break;
    }
    refused.Update(receipt.status());
  }
  if (!refused.ok()) return refused;
  return receipts;
}

absl::StatusOr<std::vector<PushResult>> Actor::SetRewards(absl::Span<const LateReward> rewards,
                                                          const CallOptions& options) {
  v1::SetRewardRequest request;
  request.set_session(core_->session);
  for (const LateReward& reward : rewards) {
    auto* entry = request.add_rewards();
    entry->set_attempt_id(reward.attempt_id);
    for (const auto& [name, value] : reward.rewards) (*entry->mutable_rewards())[name] = value;
  }
  auto response =
      core_->Call<v1::SetRewardResponse>("/forebay.v1.ActorService/SetReward", request, options);
  if (!response.ok()) return response.status();
  std::vector<PushResult> results;
  for (const int result : response->results()) results.push_back(static_cast<PushResult>(result));
  return results;
}

std::optional<Announcement> Actor::published() const { return core_->policy.published(); }
std::optional<Announcement> Actor::pending() const { return core_->policy.pending(); }

absl::StatusOr<Announcement> Actor::WaitForVersion(uint32_t number, const CallOptions& options) {
  return core_->policy.Await(number, core_->connection->LongTimeout(options), options.cancellation);
}

absl::Status Actor::ReportAdoption(const PolicyVersion& version, absl::Duration pause,
                                   const CallOptions& options) {
  {
    const std::lock_guard lock(core_->version_mutex);
    core_->version = version;
  }
  v1::ReportAdoptionRequest request;
  request.set_session(core_->session);
  request.set_engine(core_->options.engine.empty() ? core_->options.actor : core_->options.engine);
  ToWire(version, request.mutable_version());
  if (const auto since = core_->policy.PendingSince(version); since.has_value()) {
    request.set_pending_to_loaded_ms(
        static_cast<uint64_t>(absl::ToInt64Milliseconds(absl::Now() - *since)));
  }
  request.set_pause_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(pause)));
  ToWire(core_->connection->meter().Read(), request.mutable_usage());
  return core_
      ->Call<v1::ReportAdoptionResponse>("/forebay.v1.ActorService/ReportAdoption", request,
                                         options)
      .status();
}

uint64_t Actor::session() const { return core_->session; }
uint64_t Actor::run() const { return core_->run.load(); }
uint64_t Actor::rollout_bytes_max() const { return core_->rollout_bytes_max; }
size_t Actor::leases() const { return core_->leases.size(); }

}  // namespace forebay::client
