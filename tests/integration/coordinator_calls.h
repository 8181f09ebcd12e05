// A coordinator's calls for tests that wait for each answer, and what its watches and presences
// tell, to be waited for.
//
// The calls are for any thread. A Told is thread-safe; it is filled by a callback and outlives it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/sync.h"
#include "node/coordinator.h"
#include "tests/integration/daemon.h"

namespace forebay::integration {

inline absl::Duration Patience() { return absl::Seconds(20) * Slowness(); }

// Waits for the one answer of a call that keeps its deadline.
template <class T>
T Await(const std::function<void(absl::AnyInvocable<void(T)>)>& start) {
  Notification told;
  std::optional<T> answer;
  start([&](T value) {
    FOREBAY_CHECK(!answer.has_value());
    answer.emplace(std::move(value));
    told.Notify();
  });
  FOREBAY_CHECK(told.WaitFor(3 * Patience()));
  return *std::move(answer);
}

inline absl::StatusOr<node::KeyState> Get(node::Coordinator* of, const std::string& key,
                                          absl::Duration timeout = Patience()) {
  return Await<absl::StatusOr<node::KeyState>>(
      [&](auto done) { of->Get(key, timeout, std::move(done)); });
}

inline absl::StatusOr<node::KeyState> GetPrefix(node::Coordinator* of, const std::string& prefix,
                                                absl::Duration timeout = Patience()) {
  return Await<absl::StatusOr<node::KeyState>>(
      [&](auto done) { of->GetPrefix(prefix, timeout, std::move(done)); });
}

inline node::TransactionResult Commit(node::Coordinator* of, node::Transaction transaction,
                                      absl::Duration timeout = Patience()) {
  return Await<node::TransactionResult>(
      [&](auto done) { of->Commit(std::move(transaction), timeout, std::move(done)); });
}

inline node::TransactionResult Put(node::Coordinator* of, const std::string& key,
                                   const std::string& value, absl::Duration timeout = Patience()) {
  return Commit(of, {.conditions = {}, .changes = {{key, value}}}, timeout);
}

inline node::TransactionResult PutIf(node::Coordinator* of, const std::string& key,
                                     uint64_t revision, const std::string& value,
                                     absl::Duration timeout = Patience()) {
  return Commit(of, {.conditions = {{key, revision}}, .changes = {{key, value}}}, timeout);
}

// What callbacks told, in order.
template <class Event>
class Told {
 public:
  std::function<void(Event)> Callback() {
    return [this](Event event) {
      MutexLock lock(&mutex_);
      events_.push_back(std::move(event));
      changed_.NotifyAll();
    };
  }
  std::vector<Event> events() {
    MutexLock lock(&mutex_);
    return events_;
  }
  // Whether `enough` came to hold of all events so far.
  bool Wait(const std::function<bool(const std::vector<Event>&)>& enough,
            absl::Duration timeout = Patience()) {
    const Deadline deadline = DeadlineIn(timeout);
    MutexLock lock(&mutex_);
    while (!enough(events_)) {
      if (!changed_.WaitUntil(&mutex_, deadline)) return enough(events_);
    }
    return true;
  }
  bool WaitForCount(size_t count) {
    return Wait([count](const auto& events) { return events.size() >= count; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
};

using ToldByWatch = Told<node::WatchEvent>;
using ToldByPresence = Told<node::PresenceEvent>;

// "key=value@revision" of each change that was told; a deletion has no "=value". A state is told as
// "[key=value@revision, ...]@revision", what is not kept any more as "compacted".
std::vector<std::string> Words(const std::vector<node::WatchEvent>& events);

}  // namespace forebay::integration
