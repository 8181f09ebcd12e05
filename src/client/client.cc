#include "forebay/client.h"

#include <utility>

#include "absl/time/clock.h"
#include "client/connection.h"

namespace forebay::client {

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ConnectOptions& options) {
  auto connection = Connection::Open(options);
  if (!connection.ok()) return connection.status();
  return std::unique_ptr<Client>(new Client(*std::move(connection)));
}

Client::Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

Client::~Client() = default;

absl::StatusOr<std::string> Client::Call(std::string_view method, std::string_view request,
                                         const CallOptions& options) {
  return connection_->Unary(method, request, options);
}

Usage Client::usage() const { return connection_->meter().Read(); }

void Client::SetHostLoad(float load) { connection_->meter().SetHostLoad(load); }

void Cancellation::Cancel() {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return;
  cancelled_ = true;
  // Under the lock, so that Forget waits for an act that runs.
  for (const auto& [id, act] : acts_) act();
  acts_.clear();
  changed_.notify_all();
}

bool Cancellation::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

bool Cancellation::Wait(absl::Duration timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, absl::ToChronoTime(absl::Now() + timeout),
                             [this] { return cancelled_; });
}

uint64_t Cancellation::OnCancel(std::function<void()> act) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  if (cancelled_) {
    act();
  } else {
    acts_.emplace(id, std::move(act));
  }
  return id;
}

void Cancellation::Forget(uint64_t id) {
  const std::lock_guard lock(mutex_);
  acts_.erase(id);
}

}  // namespace forebay::client
