// Where the daemon listens.
//
// System calls, no state; safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/config.h"

namespace forebay::server {

struct HostPort {
  std::string host;
  int port = 0;
};

// "127.0.0.1:7401", "[::1]:7401", "localhost:0". InvalidArgument, naming `entry`, for anything
// else.
absl::StatusOr<HostPort> ParseAddress(const char* entry, const std::string& address);
bool IsLoopback(const std::string& host);
// OK for loopback, or when remote access is allowed or covered by TLS.
absl::Status CheckReach(const char* entry, const std::string& host, bool allowed);

// The path that listen.unix stands for; "" for none. Makes the folder of an automatic one, for this
// user alone.
absl::StatusOr<std::string> UnixPath(const node::Config& config);
// Removes the socket of a daemon that is gone; AlreadyExists if one still listens there.
absl::Status ClearUnixPath(const std::string& path);

}  // namespace forebay::server
