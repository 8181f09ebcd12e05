// gRPC channel arguments as text, for trying out settings: "grpc.http2.bdp_probe=0".
//
// Pure functions; safe from any thread.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <vector>

namespace forebay::bench {

using ChannelArguments = std::map<std::string, int>;

// Each text is name=integer.
absl::StatusOr<ChannelArguments> ParseChannelArguments(const std::vector<std::string>& texts);

}  // namespace forebay::bench
