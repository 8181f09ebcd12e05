#include "ctl/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::ctl {
namespace {

// Characters, as far as UTF-8 tells: bytes that do not continue one.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// Control characters of foreign text must not reach the terminal.
std::string Clean(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

}  // namespace

std::string Table::Text() const {
  std::vector<std::vector<std::string>> lines;
  std::vector<bool> right;
  std::vector<std::string> first;
  for (const std::string& heading : headings_) {
    right.push_back(heading[0] == '>');
    first.push_back(right.back() ? heading.substr(1) : heading);
  }
  lines.push_back(std::move(first));
  std::vector<size_t> widths(headings_.size(), 0);
  for (const auto& row : rows_) {
    FOREBAY_CHECK(row.size() == headings_.size());
    auto& line = lines.emplace_back();
    for (const std::string& cell : row) line.push_back(Clean(cell));
  }
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], Width(line[i]));
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - Width(line[i]), ' ');
      absl::StrAppend(&text, i == 0 ? "" : "  ", right[i] ? space : "", line[i],
                      right[i] ? "" : space);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, text, "\n");
  }
  return out;
}

std::string Duration(uint64_t ms) {
  if (ms < 1000) return absl::StrCat(ms, " ms");
  const uint64_t s = ms / 1000;
  if (s < 60) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.1f s", static_cast<double>(ms) / 1000);
    return text;
  }
  if (s < 3600) return absl::StrCat(s / 60, " min ", s % 60, " s");
  if (s < 48 * 3600) return absl::StrCat(s / 3600, " h ", s / 60 % 60, " min");
  return absl::StrCat(s / 86'400, " d ", s / 3600 % 24, " h");
}

std::string Decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text),
                std::fabs(value) >= 1e4 && std::fabs(value) < 1e15 ? "%.0f" : "%.4g", value);
  return text;
}

std::string Version(const v1::PolicyVersion& version) {
  const bool usual =
      version.branch() == 0 && (version.policy().empty() || version.policy() == "main");
  if (usual) return absl::StrCat(version.number());
  return absl::StrCat(version.policy().empty() ? "main" : version.policy(), "/", version.branch(),
                      "/", version.number());
}

std::string Hex(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

}  // namespace forebay::ctl
