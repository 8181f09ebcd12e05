#include "server/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace forebay::server {
namespace {

std::atomic<bool> json{false};

spdlog::level::level_enum LevelOf(const std::string& name) {
  if (name == "debug") return spdlog::level::debug;
  if (name == "warning") return spdlog::level::warn;
  if (name == "error") return spdlog::level::err;
  return spdlog::level::info;
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Bare if it can be read back, else in quotes.
std::string PlainText(const std::string& value) {
  const bool bare = !value.empty() && value.find_first_of(" \t\n\r\"=") == std::string::npos;
  return bare ? value : JsonText(value);
}

}  // namespace

std::string JsonText(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

void StartLog(const std::string& level, const std::string& format) {
  json = format == "json";
  auto logger = std::make_shared<spdlog::logger>("forebay",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  if (json) {
    logger->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})");
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
  }
  logger->set_level(LevelOf(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void SetLogLevel(const std::string& level) { spdlog::default_logger()->set_level(LevelOf(level)); }

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  auto* logger = spdlog::default_logger_raw();
  if (!logger->should_log(LevelOf(level))) return;
  std::string line;
  if (json) {
    line = absl::StrCat("\"event\":", JsonText(event));
    for (const auto& field : fields) {
      absl::StrAppend(&line, ",", JsonText(field.name), ":", JsonText(field.value));
    }
  } else {
    line = std::string(event);
    for (const auto& field : fields) {
      absl::StrAppend(&line, " ", std::string(field.name), "=", PlainText(field.value));
    }
  }
  logger->log(LevelOf(level), spdlog::string_view_t(line));
}

}  // namespace forebay::server
