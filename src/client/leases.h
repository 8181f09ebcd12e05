// The leases that an actor holds, and the thread that renews them, hears which are useless, and
// gives back what was dropped.
//
// Thread-safe. The connection outlives it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "client/connection.h"
#include "forebay/actor.h"
#include "forebay/v1/actor.pb.h"

namespace forebay::client {

// One lease; shared by the assignment and the renewing thread.
struct LeaseState {
  LeaseState(uint64_t a, uint32_t t) : attempt_id(a), token(t) {}
  const uint64_t attempt_id;
  const uint32_t token;
  std::atomic<uint32_t> generated_tokens{0};
  std::atomic<LeaseAction> action{LeaseAction::kContinue};
  // Pushes under way, and whether the assignment is gone: then the lease is given back if they
  // fail.
  std::atomic<int> pushing{0};
  std::atomic<bool> orphaned{false};
  Cancellation stop;

  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  // The first word counts.
  void Stop(LeaseAction what, const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (action.load() != LeaseAction::kContinue) return;
      reason_ = why;
      action.store(what);
    }
    stop.Cancel();
  }

 private:
  mutable std::mutex mutex_;  // guards reason_
  std::string reason_;
};

class Leases {
 public:
  Leases(Connection* connection, uint64_t session, absl::Duration interval);
  // Gives back what is still held.
  ~Leases();

  void Add(const std::shared_ptr<LeaseState>& lease, absl::Duration lasts);
  // Not renewed any more: it was pushed, failed or given back.
  void Remove(const LeaseState& lease);
  // As Remove, and the daemon is told soon; does not wait.
  void Drop(const LeaseState& lease);
  size_t size() const;
  // Waits until fewer than `count` are held; false if `timeout` or Close comes first.
  bool AwaitBelow(size_t count, absl::Duration timeout);
  // All are told to stop.
  void StopAll(const std::string& reason);
  // Wakes those who wait; the thread goes on.
  void Close();

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // attempt, token

  void Loop();
  void RenewAll();
  void RenewSome(const std::vector<std::shared_ptr<LeaseState>>& leases);
  void GiveBack();
  absl::Duration Interval();

  Connection* const connection_;
  const uint64_t session_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  absl::Duration interval_;
  absl::Duration shortest_ = absl::InfiniteDuration();  // lease, as granted last
  bool closed_ = false;
  bool ending_ = false;
  std::map<Key, std::shared_ptr<LeaseState>> held_;
  std::vector<Key> dropped_;

  Cancellation ending_now_;
  std::thread thread_;
};

}  // namespace forebay::client
