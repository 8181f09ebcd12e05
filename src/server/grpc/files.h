// Files and addresses that the configuration names: read, or said in words why not.
//
// Any thread. Messages name the path and what the system says of it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace forebay::server {

// `entry`: what the configuration calls it. NotFound, PermissionDenied and the like by errno.
absl::StatusOr<std::string> ReadFile(const char* entry, const std::string& path);
// The status for an operation on `path` that failed with `error` (an errno): "tls.key: cannot read
// /etc/key: Permission denied".
absl::Status FileError(const char* entry, const char* verb, const std::string& path, int error);

// Why nobody can listen on "host:port" or "unix:path", as the system says it now; "" if one could.
std::string WhyNotListen(const std::string& address);

}  // namespace forebay::server
