// The one place where absl::Status becomes gRPC's status.
//
// Pure functions; safe from any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>

#include "absl/status/status.h"

namespace forebay::server {

// Trailing metadata of a RESOURCE_EXHAUSTED or UNAVAILABLE answer: when to try again.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

grpc::Status ToGrpcStatus(const absl::Status& status);

// The status with a retry time attached, which the server sends along.
absl::Status WithRetryAfter(absl::Status status, uint32_t retry_after_ms);
// 0 if there is none.
uint32_t RetryAfterMs(const absl::Status& status);

}  // namespace forebay::server
