// What the library calls itself in sessions.
//
// A constant; safe from any thread.
#pragma once

namespace forebay::client {

inline constexpr char kClientName[] = "forebay-cpp " FOREBAY_VERSION;

}  // namespace forebay::client
