// The gRPC server in the style that measured best: one generic service, a completion queue per
// polling thread, one polling thread by default, handlers that do not block, raw byte buffers.
//
// Nothing else of gRPC's server side is used: the callback or synchronous API, and gRPC's own
// health and reflection services (which are callback services), would bring pollers of their own
// that compete with ours for every event. So health.h and reflection.h are handlers on this layer.
// Thread-safe after Start; Shutdown once, not from a handler.
#pragma once

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/grpc/method_table.h"

namespace forebay::server {

struct TlsFiles {
  std::string certificate;  // PEM chain; empty: no TLS
  std::string key;
  std::string client_ca;  // not empty: clients must show a certificate that it signed
};

// Decides on a call before its handler runs; `bearer_token` is "" when there is none. Runs on
// polling threads.
using Authorizer =
    std::function<absl::Status(std::string_view method, std::string_view bearer_token)>;

// Whether a method may be called now, asked after the authorizer and before the handler runs. An
// error is the answer; its trailers (status.h) go with it. Runs on polling threads.
using Gate = std::function<absl::Status(std::string_view method)>;

struct RpcServerOptions {
  // "127.0.0.1:7400" (port 0: a free one), "[::1]:7400", "unix:/path".
  std::vector<std::string> addresses;
  // Plain text beyond loopback.
  bool allow_remote_without_tls = false;
  TlsFiles tls;
  int io_threads = 1;
  // Larger messages are refused with RESOURCE_EXHAUSTED before they are read.
  size_t message_bytes_max = size_t{8} << 20;
  // Calls that may run at once; more are refused with RESOURCE_EXHAUSTED.
  size_t calls_max = 65'536;
  Authorizer authorize;  // unset: everybody may everything
  Gate admit;            // unset: every method, always
  // Called by Shutdown when all calls are over, before the queues end: what others have begun on
  // the shared queue has come to its end when this returns.
  std::function<void()> before_queues_end;
};

class RpcServer {
 public:
  // Binds all addresses and serves; or says which address failed. `methods` outlives the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcServerOptions& options,
                                                          MethodTable* methods);
  ~RpcServer();

  // The TCP port of each address, 0 for unix sockets.
  const std::vector<int>& ports() const { return ports_; }

  // For calls to other servers: delivers Events (poller.h), on a thread that polls for this server.
  grpc::CompletionQueue* shared_queue();

  // Answers all calls that run with `status`, not OK, except those whose method `keep` names. What
  // their handlers say afterwards is dropped; who asked to hear of a call's end (OnCancel, OnDone)
  // does. A call that begins after this, or that the gate has let in and whose handler has not run
  // yet, is met as well if the gate is closed before. Any thread; returns before it is done.
  void EndCalls(const absl::Status& status, std::function<bool(std::string_view method)> keep);

  // Takes no new calls, tells streams to end, waits up to `drain` for calls that run, cancels the
  // rest, and joins the threads.
  void Shutdown(std::chrono::milliseconds drain);

 private:
  class Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  std::vector<int> ports_;
};

}  // namespace forebay::server
