// The messages from this node to one peer: a queue, and a stream that takes what waits.
//
// The stream is opened by the first message, and again by a later one after it broke, with a pause
// that grows. While it is known that the peer cannot be reached messages are dropped rather than
// kept: replicas say everything again, and old news is worth nothing. Send may be called by any
// thread, and begins to write itself when the stream is free; all else happens on the thread that
// polls. Thread-safe.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/check.h"
#include "base/sync.h"
#include "base/tsan.h"
#include "peers/options.h"
#include "server/grpc/poller.h"

namespace forebay::peers {

// What comes out of the completion queue, which may be the server's.
class Event : public server::Event {
 public:
  void Handle(bool ok) final {
    TsanAcquire(static_cast<server::Event*>(this));
    Complete(ok);
  }
  // The transport ends before the queue does.
  void Drop() final { FOREBAY_CHECK(false); }
  virtual void Complete(bool ok) = 0;

 protected:
  // What the queue is given.
  void* Tag() {
    server::Event* const tag = this;
    TsanRelease(tag);
    return tag;
  }
};

// Counts what still has something in the completion queue.
class InFlight {
 public:
  void Add();
  void Remove();
  void AwaitNone();

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

class MessageLink : public std::enable_shared_from_this<MessageLink> {
 public:
  // All of them outlive what is in flight.
  MessageLink(const PeerTransportOptions* options, grpc::CompletionQueue* queue,
              InFlight* in_flight, cluster::NodeId to, std::string address)
      : options_(options),
        queue_(queue),
        in_flight_(in_flight),
        to_(to),
        address_(std::move(address)) {}

  void Send(std::string_view machine, std::string bytes);
  // If it is another one, what is open ends, and the next message is sent there.
  void SetAddress(std::string address);
  // Nothing is sent from now on.
  void Close();
  // Gives up a stream whose peer takes nothing.
  void Tick(Deadline now);
  void CountSnapshot(bool taken, uint64_t bytes);
  std::string address();
  // What concerns the way to the peer; the rest is untouched.
  void GetStats(PeerStats* stats);

 private:
  struct Message {
    std::string machine;
    std::string bytes;
    size_t weight() const;
  };
  struct Call;
  class Operation;

  void Open(const std::shared_ptr<Call>& call, bool ok);
  void Started(const std::shared_ptr<Call>& call, bool ok);
  void Welcomed(const std::shared_ptr<Call>& call, bool ok);
  void WriteNext(const std::shared_ptr<Call>& call);
  void Written(const std::shared_ptr<Call>& call, bool ok);
  void Finish(const std::shared_ptr<Call>& call);
  void Finished(const std::shared_ptr<Call>& call, bool ok);
  bool TakeBatch(Call* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the message goes into the queue; then `call` is what has to be opened or written to, if
  // anything is.
  bool Take(Message message, std::shared_ptr<Call>* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Detach() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ShouldTell(absl::StatusCode code) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PeerTransportOptions* const options_;
  grpc::CompletionQueue* const queue_;
  InFlight* const in_flight_;
  const cluster::NodeId to_;

  Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t failures_ ABSL_GUARDED_BY(mutex_) = 0;  // since the peer welcomed this node
  Deadline retry_at_ ABSL_GUARDED_BY(mutex_);
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // with what is being written
  PeerStats stats_ ABSL_GUARDED_BY(mutex_);
  absl::StatusCode told_ ABSL_GUARDED_BY(mutex_) = absl::StatusCode::kOk;
  Deadline tell_again_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::peers
