// The version of this build.
//
// A constant; safe from any thread.
#pragma once

namespace forebay::server {

inline constexpr const char* kVersion = FOREBAY_VERSION;

}  // namespace forebay::server
