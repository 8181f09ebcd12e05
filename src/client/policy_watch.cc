#include "client/policy_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/messages.h"

namespace forebay::client {

PolicyWatch::PolicyWatch(Connection* connection, uint64_t session,
                         std::function<void(const Announcement&)> on_policy)
    : connection_(connection), session_(session), on_policy_(std::move(on_policy)) {
  thread_ = std::thread([this] { Loop(); });
}

PolicyWatch::~PolicyWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    changed_.notify_all();
  }
  ending_.Cancel();
  thread_.join();
}

void PolicyWatch::Loop() {
  for (int failures = 0;;) {
    auto stream = connection_->OpenStream("/forebay.v1.ActorService/WatchPolicy");
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      stream_ = stream.get();
    }
    const absl::Time began = absl::Now();
    Follow(stream.get());
    {
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
    }
    const absl::Status status = stream->Finish();
    failures = absl::Now() - began > absl::Seconds(10) ? 1 : failures + 1;
    if (!connection_->PauseAfter(status, failures, &ending_)) return;
  }
}

void PolicyWatch::Follow(MessageStream* stream) {
  UsageMeter::Scope scope(&connection_->meter());
  v1::WatchPolicyRequest request;
  request.set_session(session_);
  const auto bytes = std::make_shared<const std::string>(request.SerializeAsString());
  const Piece piece{*bytes, bytes};
  if (stream->Write({&piece, 1})) stream->WritesDone();
  Incoming message;
  while (stream->Read(&message)) {
    v1::PolicyAnnouncement announcement;
    const std::string_view body = message.Whole();
    if (!announcement.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      return stream->Cancel();
    }
    Note(FromWire(announcement));
    scope.Note();
  }
}

void PolicyWatch::Note(const Announcement& announcement) {
  {
    const std::lock_guard lock(mutex_);
    auto& newest = announcement.published ? published_ : pending_;
    // After a reconnection the newest ones come again.
    if (newest.has_value() && newest->version == announcement.version) return;
    newest = announcement;
    changed_.notify_all();
  }
  if (on_policy_) on_policy_(announcement);
}

std::optional<Announcement> PolicyWatch::published() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

std::optional<Announcement> PolicyWatch::pending() const {
  const std::lock_guard lock(mutex_);
  return pending_;
}

std::optional<absl::Time> PolicyWatch::PendingSince(const PolicyVersion& version) const {
  const std::lock_guard lock(mutex_);
  if (!pending_.has_value() || pending_->version.branch != version.branch ||
      pending_->version.number != version.number) {
    return std::nullopt;
  }
  return pending_->arrived;
}

absl::StatusOr<Announcement> PolicyWatch::Await(uint32_t number, absl::Duration timeout,
                                                Cancellation* cancellation) {
  uint64_t act = 0;
  bool cancelled = false;
  if (cancellation != nullptr) {
    act = cancellation->OnCancel([this, &cancelled] {
      const std::lock_guard lock(mutex_);
      cancelled = true;
      changed_.notify_all();
    });
  }
  absl::StatusOr<Announcement> result = absl::CancelledError("cancelled by the caller");
  {
    std::unique_lock lock(mutex_);
    const auto there = [&] {
      return published_.has_value() && published_->version.number >= number;
    };
    changed_.wait_until(lock, absl::ToChronoTime(absl::Now() + timeout),
                        [&] { return closing_ || cancelled || there(); });
    if (there()) {
      result = *published_;
    } else if (!closing_ && !cancelled) {
      result = absl::DeadlineExceededError(
          absl::StrCat("version ", number, " is not published; the newest is ",
                       published_.has_value() ? absl::StrCat(published_->version.number) : "none"));
    }
  }
  if (cancellation != nullptr) cancellation->Forget(act);
  return result;
}

}  // namespace forebay::client
