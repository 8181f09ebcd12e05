// The daemon's configuration: any file and any word of a command line is taken whole or refused,
// and what was taken reads back the same.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "node/config.h"

namespace {

using forebay::node::Config;

// What Get prints, Set takes and means the same by.
void ReadsBack(const Config& config) {
  Config copy;
  for (const auto& entry : forebay::node::ConfigEntries()) {
    const std::string text = forebay::node::Get(config, entry);
    FOREBAY_CHECK(forebay::node::Set(entry.name, text, &copy).ok());
    FOREBAY_CHECK(forebay::node::Get(copy, entry) == text);
  }
}

// One word a line; those that name a file are another test's.
std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (!text.starts_with("--config")) words.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Config config;
  if (forebay::node::ReadConfigText(text, &config).ok()) ReadsBack(config);
  (void)forebay::node::Validate(config);
  const auto line = forebay::node::ParseCommandLine(Words(text));
  if (line.ok()) ReadsBack(line->config);
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return 0;
  Config running;
  (void)forebay::node::Change({{text.substr(0, equals), text.substr(equals + 1)}}, &running);
  ReadsBack(running);
  return 0;
}
