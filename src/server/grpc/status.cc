#include "server/grpc/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace forebay::server {
namespace {

constexpr char kRetryPayload[] = "forebay/retry-after-ms";
constexpr std::string_view kTrailerPrefix = "forebay/trailer/";

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  // The codes of the two have the same numbers, by design of both.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status WithRetryAfter(absl::Status status, uint32_t retry_after_ms) {
  status.SetPayload(kRetryPayload, absl::Cord(absl::StrCat(retry_after_ms)));
  return status;
}

uint32_t RetryAfterMs(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryPayload);
  uint32_t ms = 0;
  return payload.has_value() && absl::SimpleAtoi(std::string(*payload), &ms) ? ms : 0;
}

absl::Status WithTrailer(absl::Status status, std::string_view key, std::string_view value) {
  status.SetPayload(absl::StrCat(absl::string_view(kTrailerPrefix.data(), kTrailerPrefix.size()),
                                 absl::string_view(key.data(), key.size())),
                    absl::Cord(absl::string_view(value.data(), value.size())));
  return status;
}

void ForEachTrailer(const absl::Status& status,
                    const std::function<void(std::string_view key, std::string_view value)>& take) {
  status.ForEachPayload([&take](absl::string_view of, const absl::Cord& value) {
    const std::string_view url(of.data(), of.size());
    if (url.substr(0, kTrailerPrefix.size()) != kTrailerPrefix) return;
    take(url.substr(kTrailerPrefix.size()), std::string(value));
  });
}

}  // namespace forebay::server
