// A connection to a Forebay daemon, and the client's own cost.
//
//   auto client = forebay::client::Client::Connect({.address = "127.0.0.1:7400"});
//   auto actor = forebay::client::Actor::Open(client->get(), {.actor = "env-3"});
//
// Connect does not wait for the daemon: the first call does, within its deadline. Thread-safe; the
// client outlives what was made from it (Actor, Trainer, Admin). Not safe to use in a child process
// after fork: connect anew there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "forebay/call.h"

namespace forebay::client {

class Connection;

struct ConnectOptions {
  // "host:port" or "unix:/path/of/the/socket". Of a cluster any node will do, and several are
  // better, for one may be down: "a:7400,b:7400,c:7400". All is sent to the node that leads; when
  // that changes, what is under way goes on at the next one, within its deadline.
  std::string address = "127.0.0.1:7400";
  // Sent as "authorization: Bearer ..." with each call; empty: none.
  std::string token;
  // PEM text. With a root or a key the connection is TLS; an empty root then means the system's.
  std::string tls_root_pem;
  std::string tls_key_pem;
  std::string tls_cert_pem;
  bool tls = false;
  // False: calls go to this address alone, whichever node of a cluster leads; for those who look
  // after nodes.
  bool follow = true;
  // What unary calls take at most, and pushes and openings of steps.
  absl::Duration call_timeout = absl::Seconds(60);
  absl::Duration long_timeout = absl::Minutes(30);
};

// What this process and this library cost; cumulative.
struct Usage {
  uint64_t cpu_ms = 0;
  uint64_t resident_bytes = 0;
  uint64_t pushed_bytes = 0;
  uint64_t fetched_bytes = 0;
  // CPU time that threads spent inside this library. gRPC's own threads count in cpu_ms alone.
  uint64_t library_cpu_ms = 0;
  // Load of the engine's host, 0 to 1, as SetHostLoad was told.
  float host_load = 0;
};

class Client {
 public:
  // Fails only for options that cannot be right.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ConnectOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // One unary call in the contract's own encoding: `method` is
  // "/forebay.v1.AdminService/GetStatus", request and response are encoded messages. For what the
  // typed classes do not cover.
  absl::StatusOr<std::string> Call(std::string_view method, std::string_view request,
                                   const CallOptions& options = {});

  Usage usage() const;
  // Told by who knows it; reported with leases and adoptions.
  void SetHostLoad(float load);

  // For the library's own classes.
  Connection* connection() const { return connection_.get(); }

 private:
  explicit Client(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

// When the daemon asked to try again later: how much later; zero if it did not say.
absl::Duration RetryAfter(const absl::Status& status);

}  // namespace forebay::client
