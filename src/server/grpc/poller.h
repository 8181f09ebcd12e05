// A polling thread with its completion queue, and the mailbox by which other threads reach it.
//
// Post may be called from any thread and after the poller is gone (then the task is dropped). All
// else belongs to the thread that runs Run, or happens before it starts.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "base/sync.h"
#include "server/grpc/rpc.h"

namespace forebay::server {

class Call;

// What a completion-queue tag points to.
class Event {
 public:
  virtual ~Event() = default;
  // On the poller's thread. `ok` as gRPC gives it.
  virtual void Handle(bool ok) = 0;
  // In place of Handle once the queue is shut down: no operation may be begun any more.
  virtual void Drop() = 0;
};

class Mailbox {
 public:
  // Runs the task on the poller's thread, never within the call; drops it if the poller is gone.
  void Post(Task task);
  bool on_own_thread() const {
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  friend class Poller;
  // Takes what was posted.
  void Swap(std::vector<Task>* tasks);
  void Close();

  std::atomic<std::thread::id> thread_{};
  grpc::ServerCompletionQueue* queue_ = nullptr;
  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Task>
      own_tasks_;  // posted by the poller's thread itself: run after the event, no wake-up needed
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

class Poller {
 public:
  explicit Poller(std::unique_ptr<grpc::ServerCompletionQueue> queue);
  ~Poller();

  grpc::ServerCompletionQueue* queue() { return queue_.get(); }
  const std::shared_ptr<Mailbox>& mailbox() { return mailbox_; }
  // False after StopSoon took effect: no operation may be begun.
  bool running() const { return running_; }

  // Calls of known methods that have begun and are not gone yet.
  absl::flat_hash_set<Call*>& calls() { return calls_; }
  // Each of them, in no order; those that end meanwhile are left out.
  void ForEachCall(const std::function<void(Call*)>& f);

  // Polls until StopSoon, then drains the queue.
  void Run();
  // From any thread, once the server takes no calls.
  void StopSoon();
  // For a poller that never ran: shuts its queue down and drains it.
  void StopNow();

 private:
  void RunTasks();

  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<Task> tasks_;
  absl::flat_hash_set<Call*> calls_;
  bool running_ = true;
};

}  // namespace forebay::server
