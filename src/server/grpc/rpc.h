// How a method is served: unary handlers with a Responder, stream handlers with a Stream.
//
// Every call belongs to one polling thread, which runs all of its callbacks; they must not block.
// Responder and StreamRef may be used from any thread; Stream belongs to the callbacks. Bodies are
// raw byte buffers; typed.h adds protobuf messages.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace forebay::server {

using Deadline = std::chrono::system_clock::time_point;
using Task = absl::AnyInvocable<void()>;

// What a handler may ask of its call; good during the callback that hands it over.
class CallContext {
 public:
  virtual ~CallContext() = default;
  virtual std::string_view method() const = 0;
  virtual Deadline deadline() const = 0;
  // "ipv4:127.0.0.1:5555", "unix:...".
  virtual std::string peer() const = 0;
  // The first value of a metadata key, "" if there is none.
  virtual std::string Metadata(std::string_view key) const = 0;
};

class CallLink;  // what a call and the handles on it share

// Answers a unary call, once. Dropped without an answer, it answers INTERNAL: nobody waits for
// ever.
class Responder {
 public:
  explicit Responder(std::shared_ptr<CallLink> link) : link_(std::move(link)) {}
  Responder(Responder&&) = default;
  Responder& operator=(Responder&&) = delete;
  ~Responder();

  void Reply(grpc::ByteBuffer body);
  // Not OK.
  void Fail(const absl::Status& status);
  // The client is gone or its deadline is over; an answer would be dropped.
  bool cancelled() const;
  Deadline deadline() const;
  // Runs on the polling thread when the call is cancelled before it is answered, at most once; at
  // once if it is already.
  void OnCancel(Task task);

 private:
  std::shared_ptr<CallLink> link_;
};

using UnaryHandler =
    std::function<void(const CallContext& call, grpc::ByteBuffer body, Responder responder)>;

// A handle on a stream for other threads.
class StreamRef {
 public:
  StreamRef() = default;
  explicit StreamRef(std::shared_ptr<CallLink> link) : link_(std::move(link)) {}
  // Runs the task on the stream's thread, after what was posted before; drops it if the stream is
  // done by then.
  void Post(Task task) const;

 private:
  std::shared_ptr<CallLink> link_;
};

// The stream, as its handler drives it. Only within callbacks and posted tasks.
class Stream {
 public:
  virtual ~Stream() = default;
  // Asks for the next message: OnMessage or OnHalfClose follows. At most one is asked for at a
  // time; not asking is what slows the client down.
  virtual void Read() = 0;
  // Queues a message. Never refused: the handler looks at queued_bytes, stops producing, and goes
  // on at OnDrained.
  virtual void Write(grpc::ByteBuffer body) = 0;
  // Bytes written but not yet taken by the transport.
  virtual size_t queued_bytes() const = 0;
  // Ends the stream once the queue is written; nothing is read or written after it.
  virtual void Finish(const absl::Status& status) = 0;
  virtual StreamRef ref() = 0;
};

// Serves one stream; made by a factory when the stream begins, deleted after OnDone.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // First callback. A handler that wants messages calls Read.
  virtual void OnStart(Stream& stream, const CallContext& call) = 0;
  virtual void OnMessage(Stream& stream, grpc::ByteBuffer body) = 0;
  // The client sends no more. A handler that has no answers pending finishes.
  virtual void OnHalfClose(Stream& stream) = 0;
  // The queue has fallen to kDrainedBytes or below, after it was above.
  virtual void OnDrained(Stream& /*stream*/) {}
  // The server goes down: streams without an end of their own finish now.
  virtual void OnDrain(Stream& /*stream*/) {}
  // Last callback: finished or cancelled. No callback or posted task comes after it.
  virtual void OnDone() {}

  static constexpr size_t kDrainedBytes = size_t{2} << 20;
};

using StreamFactory = std::function<std::unique_ptr<StreamHandler>()>;

}  // namespace forebay::server
