// The one place where absl::Status becomes gRPC's status.
//
// Pure functions; safe from any thread.
#pragma once

#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace forebay::server {

// Trailing metadata of a RESOURCE_EXHAUSTED or UNAVAILABLE answer: when to try again.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

grpc::Status ToGrpcStatus(const absl::Status& status);

// The status with a retry time attached, which the server sends along.
absl::Status WithRetryAfter(absl::Status status, uint32_t retry_after_ms);
// 0 if there is none.
uint32_t RetryAfterMs(const absl::Status& status);

// The status with one entry of trailing metadata, which the server sends along; the key in lower
// case, the value in printable ASCII.
absl::Status WithTrailer(absl::Status status, std::string_view key, std::string_view value);
void ForEachTrailer(const absl::Status& status,
                    const std::function<void(std::string_view key, std::string_view value)>& take);

}  // namespace forebay::server
