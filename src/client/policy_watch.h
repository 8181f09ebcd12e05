// Follows the announcements of policy versions on a stream of its own, and keeps the newest.
//
// Thread-safe. The connection outlives it; the callback runs on its thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "forebay/actor.h"

namespace forebay::client {

class PolicyWatch {
 public:
  PolicyWatch(Connection* connection, uint64_t session,
              std::function<void(const Announcement&)> on_policy);
  ~PolicyWatch();

  std::optional<Announcement> published() const;
  std::optional<Announcement> pending() const;
  absl::StatusOr<Announcement> Await(uint32_t number, absl::Duration timeout,
                                     Cancellation* cancellation);
  // When the pending announcement of a version came; nothing if it did not.
  std::optional<absl::Time> PendingSince(const PolicyVersion& version) const;

 private:
  void Loop();
  void Follow(MessageStream* stream);
  void Note(const Announcement& announcement);

  Connection* const connection_;
  const uint64_t session_;
  const std::function<void(const Announcement&)> on_policy_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool closing_ = false;
  MessageStream* stream_ = nullptr;
  std::optional<Announcement> published_;
  std::optional<Announcement> pending_;

  Cancellation ending_;
  std::thread thread_;
};

}  // namespace forebay::client
