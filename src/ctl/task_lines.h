// Reads tasks from JSONL: one JSON object a line, its id in a field, the line itself as the
// payload.
//
// One thread; errors name the line.
#pragma once

#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/status.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::ctl {

struct LineFields {
  // The external id: text or a whole number. Empty: the line's number, from 1.
  std::string id = "id";
  // For weighted draws; lines without it weigh 1. Empty: none.
  std::string weight;
};

class TaskLines {
 public:
  TaskLines(std::istream* in, LineFields fields) : in_(in), fields_(std::move(fields)) {}
  // The next task; false at the end or upon an error, which status() then holds. Empty lines are
  // passed over.
  bool Next(v1::Task* task);
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Parse(const std::string& line, v1::Task* task);

  std::istream* const in_;
  const LineFields fields_;
  uint64_t line_ = 0;
  absl::Status status_;
};

}  // namespace forebay::ctl
