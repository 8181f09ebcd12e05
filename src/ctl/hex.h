// Ids as lists show them.
//
// A pure function.
#pragma once

#include <cctype>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ctl/usage.h"

namespace forebay::ctl {

// Up to 16 hex digits; `list` is the command that shows such ids.
inline absl::StatusOr<uint64_t> ParseHex(const char* option, const std::string& text,
                                         const char* list) {
  uint64_t value = 0;
  size_t read = 0;
  for (const char c : text) {
    const int digit = std::isdigit(static_cast<unsigned char>(c)) ? c - '0'
                      : c >= 'a' && c <= 'f'                      ? c - 'a' + 10
                                                                  : -1;
    if (digit < 0 || read++ == 16) {
      return UsageError(absl::StrCat(option, ": is '", text,
                                     "', must be 16 hex digits as `buffer-ctl ", list,
                                     "` shows them"));
    }
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
}

}  // namespace forebay::ctl
