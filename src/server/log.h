// The daemon's log: one line an event, with named fields, for people or as JSON. Secrets never go
// in.
//
// Thread-safe after StartLog.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace forebay::server {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// `level`: debug, info, warning, error. `format`: text or json. To standard error.
void StartLog(const std::string& level, const std::string& format);
void SetLogLevel(const std::string& level);

struct LogField {
  std::string_view name;
  std::string value;
  LogField(std::string_view n, const absl::AlphaNum& v) : name(n), value(v.Piece()) {}
};

// "steps: committed step=7 groups=64"
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// As a JSON string, quotes included.
std::string JsonText(std::string_view text);

}  // namespace forebay::server
