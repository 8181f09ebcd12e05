// How etcd is reached. Plain values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace forebay::etcd {

inline constexpr size_t kMembersMax = 16;

struct Options {
  // HOST:PORT of the members' client listeners, 1 to kMembersMax.
  std::vector<std::string> endpoints;
  // Where to begin: nodes that begin elsewhere share the members' load.
  size_t first = 0;

  // PEM text. Without `tls` and without any of it the connection is in the clear.
  bool tls = false;
  std::string tls_root_pem, tls_cert_pem, tls_key_pem;
  // Empty: etcd asks for none.
  std::string user, password;

  // How long one member may take for a call that another one can answer.
  absl::Duration attempt_timeout = absl::Seconds(1);
  // A transaction goes at once to a member that answered so recently; any other is asked first
  // whether it is there, since a transaction is sent only once.
  absl::Duration fresh_for = absl::Milliseconds(500);
  // How long a transaction that was sent is waited for before it is told as unknown, which a read
  // resolves: a member that is frozen, or whose leader is gone, takes 7 s and more to say so.
  absl::Duration transaction_timeout = absl::Seconds(1);
  // How often a watch asks for a sign of life, and how long it does without one.
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  absl::Duration silence_max = absl::Seconds(2);
};

// InvalidArgument that names the entry.
absl::Status CheckOptions(const Options& options);

}  // namespace forebay::etcd
