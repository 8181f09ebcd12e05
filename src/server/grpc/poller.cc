#include "server/grpc/poller.h"

#include <chrono>
#include <utility>

#include "base/sync.h"
#include "server/grpc/call.h"

namespace forebay::server {
namespace {

// The tag of the mailbox's alarm.
constexpr void* kMail = nullptr;

}  // namespace

void Mailbox::Post(Task task) {
  if (on_own_thread()) {
    own_tasks_.push_back(std::move(task));
    return;
  }
  Task dropped;  // destroyed outside the lock
  MutexLock lock(&mutex_);
  if (closed_) {
    dropped = std::move(task);
    return;
  }
  tasks_.push_back(std::move(task));
  if (woken_) return;
  // gRPC wakes a polling thread by an alarm that is due at once. One is under way at most, for
  // whatever comes until it rings.
  woken_ = true;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(queue_, std::chrono::system_clock::time_point(), kMail);
}

void Mailbox::Swap(std::vector<Task>* tasks) {
  MutexLock lock(&mutex_);
  tasks->swap(tasks_);
  woken_ = false;
}

void Mailbox::Close() {
  std::vector<Task> dropped;
  MutexLock lock(&mutex_);
  closed_ = true;
  dropped.swap(tasks_);
  alarm_.reset();
}

Poller::Poller(std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)), mailbox_(std::make_shared<Mailbox>()) {
  mailbox_->queue_ = queue_.get();
}

Poller::~Poller() { mailbox_->Close(); }

void Poller::RunTasks() {
  // A task may post another; both lists are run until they are empty.
  while (!mailbox_->own_tasks_.empty()) {
    std::vector<Task> own;
    own.swap(mailbox_->own_tasks_);
    for (Task& task : own) std::move(task)();
  }
}

void Poller::ForEachCall(const std::function<void(Call*)>& f) {
  std::vector<std::shared_ptr<CallLink>> links;
  links.reserve(calls_.size());
  for (Call* call : calls_) links.push_back(call->link());
  for (const auto& link : links) {
    if (link->call != nullptr) f(link->call);
  }
}

void Poller::Run() {
  mailbox_->thread_.store(std::this_thread::get_id());
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    if (tag == kMail) {
      mailbox_->Swap(&tasks_);
      for (Task& task : tasks_) std::move(task)();
      tasks_.clear();
    } else if (running_) {
      static_cast<Event*>(tag)->Handle(ok);
    } else {
      static_cast<Event*>(tag)->Drop();
    }
    RunTasks();
  }
  mailbox_->Close();
  mailbox_->own_tasks_.clear();
}

void Poller::StopSoon() {
  mailbox_->Post([this] {
    running_ = false;
    // No alarm may be set on a queue that is shut down.
    mailbox_->Close();
    queue_->Shutdown();
  });
}

void Poller::StopNow() {
  running_ = false;
  mailbox_->Close();
  queue_->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    if (tag != kMail) static_cast<Event*>(tag)->Drop();
  }
}

}  // namespace forebay::server
