#include "tests/integration/coordinator_calls.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace forebay::integration {

std::vector<std::string> Words(const std::vector<node::WatchEvent>& events) {
  using Kind = node::WatchEvent::Kind;
  std::vector<std::string> words;
  for (const node::WatchEvent& event : events) {
    if (event.kind == Kind::kCompacted) words.push_back("compacted");
    if (event.kind == Kind::kState) {
      std::vector<std::string> entries;
      for (const auto& entry : event.entries) {
        entries.push_back(absl::StrCat(entry.key, "=", entry.value, "@", entry.revision));
      }
      words.push_back(absl::StrCat("[", absl::StrJoin(entries, ", "), "]@", event.revision));
    }
    for (const auto& change : event.changes) {
      const std::string value = change.value.has_value() ? absl::StrCat("=", *change.value) : "";
      words.push_back(absl::StrCat(change.key, value, "@", change.revision));
    }
  }
  return words;
}

}  // namespace forebay::integration
