// Messages of the contract as JSON for programs: field names as in the contract, every field
// present.
//
// Numbers are numbers, but ids (fixed64) are strings, since many readers of JSON hold only 53 bits;
// enum values are lower-case without their prefix; bytes are text if they are UTF-8, else base64;
// what is not finite is null. Pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace forebay::ctl {

// Indented by two spaces.
std::string ToJson(const google::protobuf::Message& message);

// The shortest text that reads back as the same number; null if it is not finite.
std::string JsonNumber(double value);
std::string JsonNumber(float value);
// With quotes and escapes; UTF-8 stays.
std::string JsonText(std::string_view text);

// "VERDICT_OK" -> "ok".
std::string EnumName(const google::protobuf::EnumValueDescriptor& value);
template <class Enum>
std::string EnumName(Enum value) {
  const auto* descriptor = google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value);
  return descriptor == nullptr ? std::to_string(static_cast<int>(value)) : EnumName(*descriptor);
}

}  // namespace forebay::ctl
