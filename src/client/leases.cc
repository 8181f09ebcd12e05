#include "client/leases.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "client/messages.h"

namespace forebay::client {
namespace {

constexpr size_t kLeasesPerCall = 16'384;
constexpr absl::Duration kRenewTimeoutMin = absl::Seconds(1);
// How long the end of an actor may wait for the daemon to take its leases back; they expire anyway.
constexpr absl::Duration kLastReleaseTimeout = absl::Seconds(2);

}  // namespace

Leases::Leases(Connection* connection, uint64_t session, absl::Duration interval)
    : connection_(connection), session_(session), interval_(interval) {
  thread_ = std::thread([this] { Loop(); });
}

Leases::~Leases() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& [key, lease] : held_) dropped_.push_back(key);
    held_.clear();
    changed_.notify_all();
  }
  // A call that waits for a daemon that is gone must not hold up the end.
  ending_now_.Cancel();
  thread_.join();
}

void Leases::Add(const std::shared_ptr<LeaseState>& lease, absl::Duration lasts) {
  const std::lock_guard lock(mutex_);
  held_[{lease->attempt_id, lease->token}] = lease;
  if (lasts < shortest_) {
    shortest_ = lasts;
    changed_.notify_all();
  }
}

void Leases::Remove(const LeaseState& lease) {
  const std::lock_guard lock(mutex_);
  if (held_.erase({lease.attempt_id, lease.token}) > 0) changed_.notify_all();
}

void Leases::Drop(const LeaseState& lease) {
  const std::lock_guard lock(mutex_);
  if (held_.erase({lease.attempt_id, lease.token}) == 0) return;
  dropped_.emplace_back(lease.attempt_id, lease.token);
  changed_.notify_all();
}

size_t Leases::size() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

bool Leases::AwaitBelow(size_t count, absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, absl::ToChronoTime(absl::Now() + timeout), [&] {
    return closed_ || held_.size() < count;
  }) && !closed_;
}

void Leases::StopAll(const std::string& reason) {
  std::vector<std::shared_ptr<LeaseState>> held;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, lease] : held_) held.push_back(lease);
  }
  for (const auto& lease : held) lease->Stop(LeaseAction::kSavePartial, reason);
}

void Leases::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

// Often enough that two renewals may be lost.
absl::Duration Leases::Interval() {
  return std::max(std::min(interval_, shortest_ / 3), absl::Milliseconds(10));
}

void Leases::Loop() {
  UsageMeter::Scope scope(&connection_->meter());
  absl::Time last = absl::Now();
  while (true) {
    bool renew = false;
    {
      std::unique_lock lock(mutex_);
      while (!ending_ && dropped_.empty() && absl::Now() < last + Interval()) {
        changed_.wait_until(lock, absl::ToChronoTime(last + Interval()));
      }
      renew = absl::Now() >= last + Interval();
      if (ending_ && dropped_.empty()) return;
    }
    GiveBack();
    if (renew) {
      last = absl::Now();
      RenewAll();
    }
    scope.Note();
  }
}

void Leases::RenewAll() {
  std::vector<std::shared_ptr<LeaseState>> held;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, lease] : held_) held.push_back(lease);
  }
  // Without leases too: the usage is reported, and the session shown as alive.
  for (size_t at = 0; at == 0 || at < held.size(); at += kLeasesPerCall) {
    const size_t end = std::min(held.size(), at + kLeasesPerCall);
    RenewSome(
        {held.begin() + static_cast<ptrdiff_t>(at), held.begin() + static_cast<ptrdiff_t>(end)});
  }
}

void Leases::RenewSome(const std::vector<std::shared_ptr<LeaseState>>& leases) {
  v1::RenewRequest request;
  request.set_session(session_);
  for (const auto& lease : leases) {
    request.add_attempt_ids(lease->attempt_id);
    request.add_tokens(lease->token);
    request.add_generated_tokens(lease->generated_tokens.load());
  }
  ToWire(connection_->meter().Read(), request.mutable_usage());
  absl::Duration timeout;
  {
    const std::lock_guard lock(mutex_);
    timeout = std::max(interval_, kRenewTimeoutMin);
  }
  // A renewal that fails is made good by the next one.
  auto response =
      CallTyped<v1::RenewResponse>(connection_, "/forebay.v1.ActorService/Renew", request,
                                   {.timeout = timeout, .cancellation = &ending_now_});
  if (!response.ok()) return;
  for (int i = 0; i < response->actions_size() && static_cast<size_t>(i) < leases.size(); ++i) {
    if (response->actions(i) == v1::LEASE_ACTION_CONTINUE) continue;
    leases[static_cast<size_t>(i)]->Stop(static_cast<LeaseAction>(response->actions(i)),
                                         i < response->reasons_size() ? response->reasons(i) : "");
  }
  const std::lock_guard lock(mutex_);
  if (response->lease_ms() > 0) shortest_ = absl::Milliseconds(response->lease_ms());
}

void Leases::GiveBack() {
  std::vector<Key> keys;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    if (dropped_.empty()) return;
    const auto end =
        dropped_.begin() + static_cast<ptrdiff_t>(std::min(dropped_.size(), kLeasesPerCall));
    keys.assign(dropped_.begin(), end);
    dropped_.erase(dropped_.begin(), end);
    last = ending_;
  }
  v1::ReleaseRequest request;
  request.set_session(session_);
  for (const auto& [attempt, token] : keys) {
    request.add_attempt_ids(attempt);
    request.add_tokens(token);
  }
  CallOptions call;
  if (last) {
    call = {.timeout = kLastReleaseTimeout, .retry = false};
  } else {
    call.cancellation = &ending_now_;
  }
  // If it fails the leases expire.
  const auto response = CallTyped<v1::ReleaseResponse>(
      connection_, "/forebay.v1.ActorService/Release", request, call);
  if (last || !absl::IsCancelled(response.status())) return;
  // Cut short by the end, which tries once more.
  const std::lock_guard lock(mutex_);
  dropped_.insert(dropped_.end(), keys.begin(), keys.end());
}

}  // namespace forebay::client
