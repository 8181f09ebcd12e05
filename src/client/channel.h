// A channel to one node, and the calls that run on it; how channels are made from the options.
//
// Thread-safe. Leave ends the calls of a node that is not to be called any more: one that is frozen
// would never end them.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "forebay/client.h"

namespace forebay::client {

class Channel {
 public:
  Channel(const ConnectOptions& options, std::string address);

  const std::string& address() const { return address_; }
  grpc::Channel* grpc() const { return grpc_.get(); }
  const std::shared_ptr<grpc::Channel>& shared() const { return grpc_; }

  // A lost connection comes back only while some thread polls, and a call that fails at once does
  // not; gRPC itself looks each 5 s.
  void LetConnect(absl::Time deadline) const;
  // Forgets how long to wait until the next try to connect.
  void ConnectNow() const;

  // False if the channel was left; then the call must not begin. The context lives until Exit.
  bool Enter(grpc::ClientContext* context);
  void Exit(grpc::ClientContext* context);
  // Cancels all calls; for good.
  void Leave();
  bool left() const { return left_.load(); }

 private:
  const std::string address_;
  const std::shared_ptr<grpc::Channel> grpc_;
  std::atomic<bool> left_{false};
  std::mutex mutex_;
  std::set<grpc::ClientContext*> calls_;  // guarded by mutex_
};

bool IsTls(const ConnectOptions& options);
// Certificates and keys that cannot be right; gRPC says so only in its own log.
absl::Status CheckPem(const ConnectOptions& options);
// Adds the token.
void Authorize(const ConnectOptions& options, grpc::ClientContext* context);

}  // namespace forebay::client
