// A file of tasks: each line is a task or the end of the reading, which names the line.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "ctl/json.h"
#include "ctl/task_lines.h"

namespace {

const bool kQuiet = (google::protobuf::SetLogHandler(nullptr), true);

void Read(const std::string& text, const forebay::ctl::LineFields& fields) {
  std::istringstream in(text);
  forebay::ctl::TaskLines lines(&in, fields);
  forebay::v1::Task task;
  while (lines.Next(&task)) {
    if (task.payload().empty()) std::abort();
    (void)forebay::ctl::ToJson(task);
  }
  if (!lines.status().ok() && !absl::StrContains(lines.status().message(), "line")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Read(text, {});
  Read(text, {.id = "", .weight = "w"});
  return 0;
}
