#include "ctl/settings.h"

#include <google/protobuf/message.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ctl/json.h"
#include "ctl/usage.h"

namespace forebay::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Wrong(const std::string& name, const std::string& value, std::string_view wants) {
  return UsageError(absl::StrCat(name, ": is '", value, "', must be ", std::string(wants)));
}

std::string Names(const google::protobuf::Descriptor& descriptor) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor.field_count(); ++i) names.push_back(descriptor.field(i)->name());
  return absl::StrJoin(names, ", ");
}

absl::Status SetEnum(Message* message, const FieldDescriptor* field, const std::string& name,
                     const std::string& value) {
  std::vector<std::string> known;
  for (int i = 0; i < field->enum_type()->value_count(); ++i) {
    const auto* entry = field->enum_type()->value(i);
    if (EnumName(*entry) == value) {
      message->GetReflection()->SetEnum(message, field, entry);
      return absl::OkStatus();
    }
    if (entry->number() != 0) known.push_back(EnumName(*entry));
  }
  return Wrong(name, value, absl::StrCat("one of ", absl::StrJoin(known, ", ")));
}

absl::Status SetScalar(Message* message, const FieldDescriptor* field, const std::string& name,
                       const std::string& value) {
  const auto* reflection = message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32: {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(value, &number)) return Wrong(name, value, "a whole number from 0");
      reflection->SetUInt32(message, field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t number = 0;
      if (!absl::SimpleAtoi(value, &number)) return Wrong(name, value, "a whole number from 0");
      reflection->SetUInt64(message, field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double number = 0;
      if (!absl::SimpleAtod(value, &number)) return Wrong(name, value, "a number");
      reflection->SetDouble(message, field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool flag = false;
      if (!absl::SimpleAtob(value, &flag)) return Wrong(name, value, "true or false");
      reflection->SetBool(message, field, flag);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetString(message, field, value);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM:
      return SetEnum(message, field, name, value);
    default:
      return Wrong(name, value, "set by the names of its parts");
  }
}

// rewards.KEY=WEIGHT.
absl::Status SetReward(v1::SourceSettings* settings, const std::string& name,
                       const std::string& key, const std::string& value) {
  if (value.empty()) {
    settings->mutable_rewards()->erase(key);
    return absl::OkStatus();
  }
  double weight = 0;
  if (!absl::SimpleAtod(value, &weight)) return Wrong(name, value, "a number");
  (*settings->mutable_rewards())[key] = weight;
  return absl::OkStatus();
}

absl::Status Set(Message* message, const std::string& path, const std::string& name,
                 const std::string& value) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(path, absl::MaxSplits('.', 1));
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(parts.first);
  if (field == nullptr) {
    return UsageError(absl::StrCat(name, ": there is no setting '", parts.first,
                                   "'; there are: ", Names(*message->GetDescriptor())));
  }
  if (field->is_map()) {
    // SourceSettings has one map: the rewards' weights.
    if (parts.second.empty()) return Wrong(name, value, "rewards.KEY=WEIGHT");
    return SetReward(static_cast<v1::SourceSettings*>(message), name, parts.second, value);
  }
  const auto* reflection = message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !parts.second.empty()) {
    return Set(reflection->MutableMessage(message, field), parts.second, name, value);
  }
  if (!parts.second.empty()) return Wrong(name, value, "set without a dot: it has no parts");
  reflection->ClearField(message, field);
  if (value.empty()) return absl::OkStatus();
  if (!field->is_repeated()) return SetScalar(message, field, name, value);
  for (const auto& part : absl::StrSplit(value, ',')) {
    reflection->AddString(message, field, std::string(part));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplySettings(const std::vector<std::string>& assignments,
                           v1::SourceSettings* settings, std::set<std::string>* fields) {
  const bool resizes = std::ranges::any_of(
      assignments, [](const std::string& a) { return absl::StartsWith(a, "group_size="); });
  // The daemon does so with what is not named at all; here it may be a part of what is.
  v1::Completeness* const complete = settings->mutable_completeness();
  if (resizes && complete->minimum() == std::min(2u, complete->at_least())) {
    complete->clear_minimum();
  }
  if (resizes && complete->at_least() == settings->group_size()) complete->clear_at_least();
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      return UsageError(
          absl::StrCat("'", assignment, "' is no setting: write NAME=VALUE, as in group_size=16"));
    }
    const std::string name = assignment.substr(0, equals);
    const std::string field = name.substr(0, name.find('.'));
    if (field == "name") return UsageError("name: a source keeps its name");
    if (auto status = Set(settings, name, name, assignment.substr(equals + 1)); !status.ok()) {
      return status;
    }
    fields->insert(field);
  }
  return absl::OkStatus();
}

}  // namespace forebay::ctl
