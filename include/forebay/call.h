// What every call of the client takes: a deadline, and a way to end it early.
//
// CallOptions are plain values. A Cancellation is thread-safe; it outlives the calls that it was
// given to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "absl/time/time.h"

namespace forebay::client {

// Ends calls early: they return CANCELLED. Once cancelled it stays so.
class Cancellation {
 public:
  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel();
  bool cancelled() const;
  // Waits until it is cancelled; false if `timeout` ends first.
  bool Wait(absl::Duration timeout) const;

  // Calls `act` upon Cancel, at once if that has come already. `act` is short and does not call
  // this object.
  uint64_t OnCancel(std::function<void()> act);
  // After it returned, `act` does not run and will not.
  void Forget(uint64_t id);

 private:
  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  bool cancelled_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::function<void()>> acts_;
};

struct CallOptions {
  // Until the call ends with DEADLINE_EXCEEDED. Zero: the connection's default for this kind of
  // call.
  absl::Duration timeout = absl::ZeroDuration();
  // May be null.
  Cancellation* cancellation = nullptr;
  // Repeat the call while the daemon cannot be reached or is full. Every call of the contract is
  // idempotent. Without it a call still goes on to the node of a cluster that leads.
  bool retry = true;
};

}  // namespace forebay::client
