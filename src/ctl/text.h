// Text of others on a person's terminal.
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace forebay::ctl {

// UTF-8 as it is, but for control characters other than line feeds and tabs, which come as \xNN:
// what a policy wrote must not steer a terminal. What is not UTF-8 has such escapes for all bytes
// above 0x7e.
std::string Printable(std::string_view text);

}  // namespace forebay::ctl
