#include "ctl/task_lines.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace forebay::ctl {
namespace {

constexpr double kWholeMax =
    9007199254740992.0;  // 2^53: beyond, doubles are no whole numbers any more

}  // namespace

bool TaskLines::Next(v1::Task* task) {
  std::string line;
  while (status_.ok() && std::getline(*in_, line)) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (++line_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    if (auto status = Parse(line, task); !status.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("line ", line_, ": ", std::string(status.message())));
      return false;
    }
    return true;
  }
  if (in_->bad()) status_ = absl::DataLossError(absl::StrCat("reading failed after line ", line_));
  return false;
}

absl::Status TaskLines::Parse(const std::string& line, v1::Task* task) {
  task->Clear();
  google::protobuf::Struct object;
  if (const auto status = google::protobuf::util::JsonStringToMessage(line, &object);
      !status.ok()) {
    return absl::InvalidArgumentError("is no JSON object");
  }
  task->set_payload(std::string(absl::StripAsciiWhitespace(line)));
  if (fields_.id.empty()) {
    task->set_external_id(absl::StrCat(line_));
  } else {
    const auto id = object.fields().find(fields_.id);
    if (id == object.fields().end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "has no field '", fields_.id,
          "'; name the id's field with --id-field, or number the lines with --number"));
    }
    const double number = id->second.number_value();
    if (id->second.has_string_value()) {
      task->set_external_id(id->second.string_value());
    } else if (id->second.has_number_value() && number == std::floor(number) &&
               std::fabs(number) < kWholeMax) {
      task->set_external_id(absl::StrCat(static_cast<int64_t>(number)));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("field '", fields_.id, "' must be text or a whole number below 2^53"));
    }
  }
  if (fields_.weight.empty()) return absl::OkStatus();
  const auto weight = object.fields().find(fields_.weight);
  if (weight == object.fields().end()) return absl::OkStatus();
  if (!weight->second.has_number_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("field '", fields_.weight, "' must be a number"));
  }
  task->set_weight(weight->second.number_value());
  return absl::OkStatus();
}

}  // namespace forebay::ctl
