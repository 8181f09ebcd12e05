// The version of this build.
#pragma once

namespace forebay::server {

inline constexpr const char* kVersion = FOREBAY_VERSION;

}  // namespace forebay::server
