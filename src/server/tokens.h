// Reads the file of bearer tokens.
//
// Pure but for the file. The tokens never go into a message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/grpc/auth.h"

namespace forebay::server {

// Lines "ROLE TOKEN"; empty lines and those that begin with # are skipped. InvalidArgument names
// the line. A file that others may read is refused.
absl::Status ReadTokens(const std::string& path, TokenAuthorizer* authorizer);

}  // namespace forebay::server
