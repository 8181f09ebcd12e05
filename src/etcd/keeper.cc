#include "etcd/keeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "etcd/messages.h"

namespace forebay::etcd {
namespace {

using Kind = node::PresenceEvent::Kind;

constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr absl::Duration kFarewell = absl::Seconds(1);

}  // namespace

Deadline Keeper::CallDeadline() const {
  return DeadlineIn(std::max(what_.time_to_live, time_to_live_));
}

void Keeper::Start() {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(what_.time_to_live, absl::Seconds(1))));
  lease_ = 0;
  // A grant whose answer is lost is a lease without a key, which ends by itself.
  const Deadline asked = std::chrono::steady_clock::now();
  members_->Call(kLeaseGrant, request.SerializeAsString(), CallDeadline(),
                 [self = shared_from_this(), asked](const absl::StatusOr<std::string>& answer) {
                   self->Granted(answer, asked);
                 });
}

void Keeper::Granted(const absl::StatusOr<std::string>& answer, Deadline asked) {
  const auto response = Parse<etcdserverpb::LeaseGrantResponse>(answer);
  if (ended_) {
    if (response.ok()) Revoke(response->id(), [] {});
    return;
  }
  if (!response.ok()) {
    Lost(response.status());
    return In(kPause, &Keeper::Start);
  }
  lease_ = response->id();
  time_to_live_ = absl::Seconds(response->ttl());
  confirmed_until_ = asked + absl::ToChronoNanoseconds(time_to_live_);
  Put();
}

void Keeper::Put() {
  etcdserverpb::TxnRequest request;
  auto* put = request.add_success()->mutable_request_put();
  put->set_key(what_.key);
  put->set_value(what_.value);
  put->set_lease(lease_);
  // Without a condition, and always the same: it may be sent twice.
  members_->Call(kTxn, request.SerializeAsString(), CallDeadline(),
                 [self = shared_from_this()](const absl::StatusOr<std::string>& answer) {
                   if (!self->ended_) self->PutDone(answer);
                 });
}

void Keeper::PutDone(const absl::StatusOr<std::string>& answer) {
  const auto response = Parse<etcdserverpb::TxnResponse>(answer);
  if (!response.ok()) {
    Lost(response.status());
    // With the same lease, as long as there is one: the first put may come yet.
    return In(kPause, absl::IsNotFound(response.status()) ? &Keeper::Start : &Keeper::Put);
  }
  Held(static_cast<uint64_t>(response->header().revision()));
  KeepAlive();
}

void Keeper::KeepAlive() {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease_);
  const Deadline asked = std::chrono::steady_clock::now();
  Deadline deadline = DeadlineIn(time_to_live_ / 2);
  // So that it is told in time that the key may be gone.
  if (held_) deadline = std::clamp(confirmed_until_, DeadlineIn(kPause), deadline);
  members_->Call(kLeaseKeepAlive, request.SerializeAsString(), deadline,
                 [self = shared_from_this(), asked](const absl::StatusOr<std::string>& answer) {
                   if (!self->ended_) self->KeptAlive(answer, asked);
                 });
}

void Keeper::KeptAlive(const absl::StatusOr<std::string>& answer, Deadline asked) {
  const auto response = Parse<etcdserverpb::LeaseKeepAliveResponse>(answer);
  if (response.ok() && response->ttl() <= 0) {
    Lost(absl::NotFoundError(absl::StrCat("etcd: the lease of ", what_.key, " has ended")));
    return Start();
  }
  if (!response.ok()) {
    if (std::chrono::steady_clock::now() >= confirmed_until_) Lost(response.status());
    return In(kPause, &Keeper::KeepAlive);
  }
  time_to_live_ = absl::Seconds(response->ttl());
  confirmed_until_ = asked + absl::ToChronoNanoseconds(time_to_live_);
  if (!held_) Held(0);
  In(time_to_live_ / 3, &Keeper::KeepAlive);
}

void Keeper::Held(uint64_t revision) {
  held_ = true;
  told_ = false;
  gate_->Run({.kind = Kind::kHeld, .revision = revision});
}

void Keeper::Lost(const absl::Status& why) {
  held_ = false;
  if (std::exchange(told_, true)) return;
  gate_->Run({.kind = Kind::kLost, .why = why});
}

void Keeper::In(absl::Duration pause, void (Keeper::*next)()) {
  if (ended_) return;
  timer_ = loop_->At(DeadlineIn(pause), [self = shared_from_this(), next] {
    self->timer_.reset();
    (self.get()->*next)();
  });
}

void Keeper::Revoke(int64_t lease, std::function<void()> ended) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  // If nobody answers, the lease ends by itself.
  members_->Call(kLeaseRevoke, request.SerializeAsString(), DeadlineIn(kFarewell),
                 [ended = std::move(ended)](const absl::StatusOr<std::string>&) { ended(); });
}

void Keeper::End(std::function<void()> ended) {
  ended_ = true;
  if (timer_.has_value()) loop_->Cancel(*timer_);
  timer_.reset();
  if (lease_ == 0) return ended();
  Revoke(lease_, std::move(ended));
}

}  // namespace forebay::etcd
