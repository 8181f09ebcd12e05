// Calls and streams to single members, as bytes: all of etcd that knows gRPC.
//
// Belongs to the loop: every function is called on its thread, and what was asked for is told
// there. A thread of its own only hands over what gRPC completes. It waits in gRPC while an answer
// is awaited, and else looks now and then: gRPC's polling threads take turns at polling for all of
// a process, so that one that waits for a watch's next event is woken by each message of a client.
// Before it is destroyed everything must have come to its end (Cancel).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "etcd/options.h"
#include "node/event_loop.h"

namespace forebay::etcd {

class Wire;

class Stream {
 public:
  // Requests that wait for the member to take them.
  static constexpr size_t kWritesMax = 8;

  struct Handler {
    std::function<void(const std::string& message)> message;
    std::function<void(const absl::Status& why)> end;  // once; nothing comes after it
  };

  virtual ~Stream() = default;
  // False if too many wait, or the stream has ended.
  virtual bool Write(const std::string& message) = 0;
  // Nothing more is told.
  virtual void Cancel() = 0;
};

class Wire {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::string>)>;

  Wire(node::EventLoop* loop, const Options& options);
  ~Wire();

  // Sent with every call from now on, if it is not empty.
  void SetToken(std::string token) { token_ = std::move(token); }

  // One request, one answer; a stream that is asked once and answers once is such a call too.
  // `needs_leader`: a member that knows of none refuses at once, rather than wait for one.
  void Unary(size_t member, const std::string& method, const std::string& request,
             Deadline deadline, bool needs_leader, Done done);
  std::shared_ptr<Stream> Open(size_t member, const std::string& method, Stream::Handler handler);

  // Ends what runs, with Cancelled; `drained` once all of it was told.
  void Cancel(std::function<void()> drained);

 private:
  struct Grpc;
  struct Call;
  class GrpcStream;

  // Told on the loop; counted until then.
  void* Tag(std::function<void(bool ok)> then);
  void Completed(void* tag, bool ok);
  void Poll();
  // Whether somebody waits for an answer now; counted.
  void Await(int more);

  node::EventLoop* const loop_;
  std::string token_;
  size_t outstanding_ = 0;
  std::function<void()> drained_;
  std::set<Call*> calls_;
  std::set<GrpcStream*> streams_;
  const std::unique_ptr<Grpc> grpc_;
};

}  // namespace forebay::etcd
