// The client's transport: unary calls with deadline, cancellation and retries, and streams of raw
// messages. What knows gRPC in the client is connection.cc and what it stands on (cluster.h).
//
// In a cluster all goes to the node that leads; when another one takes over, what is under way ends
// with UNAVAILABLE, and whoever repeats it finds the new leader.
//
// A Connection is thread-safe. A MessageStream has one writer and one reader, which may be two
// threads; Cancel may come from any thread. The connection outlives its streams.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/usage_meter.h"
#include "forebay/call.h"
#include "forebay/client.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace forebay::client {

class Channel;
class Cluster;

// Bytes of a message that is sent. They are not copied: `owner` is let go when the transport no
// longer needs them, from any thread.
struct Piece {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

// A message that came in, as the pieces that the transport delivered.
class Incoming {
 public:
  Incoming();
  ~Incoming();
  Incoming(Incoming&&) noexcept;
  Incoming& operator=(Incoming&&) noexcept;

  // Valid until the next Read into this object.
  absl::Span<const std::string_view> views() const { return views_; }
  size_t bytes() const;
  // In one piece; copied only if it came in several.
  std::string_view Whole();

 private:
  friend class MessageStream;
  struct Slices;
  std::unique_ptr<Slices> slices_;
  std::vector<std::string_view> views_;
  std::string whole_;
};

class MessageStream {
 public:
  // Cancels what still runs.
  ~MessageStream();

  // False if the stream has ended: Finish says why.
  bool Write(absl::Span<const Piece> pieces);
  bool Read(Incoming* message);
  // No more writes.
  void WritesDone();
  // Waits for the end. Once, after Read gave false or Cancel was called; no other call runs or
  // follows.
  absl::Status Finish();
  void Cancel();

 private:
  friend class Connection;
  struct Call;
  explicit MessageStream(std::unique_ptr<Call> call);
  std::unique_ptr<Call> call_;
};

class Connection {
 public:
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const ConnectOptions& options);
  ~Connection();

  absl::StatusOr<std::string> Unary(std::string_view method, std::string_view request,
                                    const CallOptions& options);
  // Opens at once; whether the daemon is there shows with the first Read. No deadline: whoever
  // reads cancels. `server_streams_only`: one request is written, then the daemon streams.
  std::unique_ptr<MessageStream> OpenStream(const std::string& method);

  // Before what failed, so many times in a row, is begun again: the pause that the failure asks
  // for, cut short when there is a better place. False if it was cancelled.
  bool PauseAfter(const absl::Status& failure, int failures, Cancellation* cancellation);

  UsageMeter& meter() { return meter_; }
  const ConnectOptions& options() const { return options_; }

  // A call's timeout: its own or the default of its kind.
  absl::Duration CallTimeout(const CallOptions& options) const {
    return options.timeout > absl::ZeroDuration() ? options.timeout : options_.call_timeout;
  }
  absl::Duration LongTimeout(const CallOptions& options) const {
    return options.timeout > absl::ZeroDuration() ? options.timeout : options_.long_timeout;
  }

 private:
  friend class MessageStream;
  Connection(const ConnectOptions& options, std::unique_ptr<Cluster> cluster);
  absl::Status CallOnce(Channel* channel, const std::string& method, std::string_view request,
                        absl::Time deadline, Cancellation* cancellation, std::string* response);
  // `cancelled`: by who made the call.
  absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context,
                        const Channel& channel, bool cancelled);

  const ConnectOptions options_;
  UsageMeter meter_;
  const std::unique_ptr<Cluster> cluster_;
};

// Whether a failed call may be repeated as it is: the daemon was not reached, or asked to come
// again.
bool MayRetry(const absl::Status& status);
// How long to wait before attempt number `attempt` (from 1): doubling, with a bound, or what the
// daemon asked for.
absl::Duration Backoff(const absl::Status& status, int attempt);
// Sleeps; false if it was cancelled before.
bool Pause(absl::Duration duration, Cancellation* cancellation);

// A typed call: Request and Response are messages of the contract.
template <class Response, class Request>
absl::StatusOr<Response> CallTyped(Connection* connection, std::string_view method,
                                   const Request& request, const CallOptions& options) {
  auto bytes = connection->Unary(method, request.SerializeAsString(), options);
  if (!bytes.ok()) return bytes.status();
  Response response;
  if (!response.ParseFromString(*bytes)) {
    return absl::InternalError("the daemon's answer cannot be read: is it of another version?");
  }
  return response;
}

}  // namespace forebay::client
