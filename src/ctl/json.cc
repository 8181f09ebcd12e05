#include "ctl/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "codec/wire.h"

namespace forebay::ctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void AppendText(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      out->append(escaped);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

// The shortest text that reads back as the same number, with up to `digits` digits.
std::string Number(double value, int digits, bool single) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  for (int tried = digits - 2; tried <= digits; ++tried) {
    std::snprintf(text, sizeof(text), "%.*g", tried, value);
    const double read = std::strtod(text, nullptr);
    if (single ? static_cast<float>(read) == static_cast<float>(value) : read == value) break;
  }
  return text;
}

void Append(const Message& message, int depth, std::string* out);

// One value: of a singular field (index -1) or of a repeated one.
void AppendValue(const Message& message, const FieldDescriptor* field, int index, int depth,
                 std::string* out) {
  const Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Append(
          one ? r.GetMessage(message, field) : r.GetRepeatedMessage(message, field, index), depth,
          out);
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value =
          one ? r.GetString(message, field) : r.GetRepeatedString(message, field, index);
      const bool text = field->type() == FieldDescriptor::TYPE_STRING || codec::IsUtf8(value);
      return AppendText(text ? value : absl::Base64Escape(value), out);
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      return AppendText(
          EnumName(*(one ? r.GetEnum(message, field) : r.GetRepeatedEnum(message, field, index))),
          out);
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = one ? r.GetBool(message, field) : r.GetRepeatedBool(message, field, index);
      return absl::StrAppend(out, value ? "true" : "false");
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrAppend(out, Number(one ? r.GetDouble(message, field)
                                             : r.GetRepeatedDouble(message, field, index),
                                         17, false));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return absl::StrAppend(
          out, Number(one ? r.GetFloat(message, field) : r.GetRepeatedFloat(message, field, index),
                      9, true));
    case FieldDescriptor::CPPTYPE_UINT64: {
      const uint64_t value =
          one ? r.GetUInt64(message, field) : r.GetRepeatedUInt64(message, field, index);
      const char* quote = field->type() == FieldDescriptor::TYPE_FIXED64 ? "\"" : "";
      return absl::StrAppend(out, quote, value, quote);
    }
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrAppend(
          out, one ? r.GetUInt32(message, field) : r.GetRepeatedUInt32(message, field, index));
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrAppend(
          out, one ? r.GetInt32(message, field) : r.GetRepeatedInt32(message, field, index));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrAppend(
          out, one ? r.GetInt64(message, field) : r.GetRepeatedInt64(message, field, index));
  }
}

void NewLine(int depth, std::string* out) {
  out->push_back('\n');
  out->append(static_cast<size_t>(depth) * 2, ' ');
}

// An object with its keys in order, so that the same map is the same text.
void AppendMap(const Message& message, const FieldDescriptor* field, int depth, std::string* out) {
  const Reflection& r = *message.GetReflection();
  std::vector<const Message*> entries;
  for (int i = 0; i < r.FieldSize(message, field); ++i) {
    entries.push_back(&r.GetRepeatedMessage(message, field, i));
  }
  const auto key = [&](const Message* entry) {
    return entry->GetReflection()->GetString(*entry, field->message_type()->map_key());
  };
  std::sort(entries.begin(), entries.end(),
            [&](const Message* a, const Message* b) { return key(a) < key(b); });
  out->push_back('{');
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out->push_back(',');
    NewLine(depth + 1, out);
    AppendText(key(entries[i]), out);
    out->append(": ");
    AppendValue(*entries[i], field->message_type()->map_value(), -1, depth + 1, out);
  }
  if (!entries.empty()) NewLine(depth, out);
  out->push_back('}');
}

void AppendList(const Message& message, const FieldDescriptor* field, int depth, std::string* out) {
  const int size = message.GetReflection()->FieldSize(message, field);
  const bool tall = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && size > 0;
  out->push_back('[');
  for (int i = 0; i < size; ++i) {
    if (i > 0) out->append(tall ? "," : ", ");
    if (tall) NewLine(depth + 1, out);
    AppendValue(message, field, i, depth + 1, out);
  }
  if (tall) NewLine(depth, out);
  out->push_back(']');
}

void Append(const Message& message, int depth, std::string* out) {
  const auto* descriptor = message.GetDescriptor();
  out->push_back('{');
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    if (i > 0) out->push_back(',');
    NewLine(depth + 1, out);
    AppendText(field->name(), out);
    out->append(": ");
    const bool absent = field->has_presence() && !message.GetReflection()->HasField(message, field);
    if (field->is_map()) {
      AppendMap(message, field, depth + 1, out);
    } else if (field->is_repeated()) {
      AppendList(message, field, depth + 1, out);
    } else if (absent) {
      out->append("null");
    } else {
      AppendValue(message, field, -1, depth + 1, out);
    }
  }
  if (descriptor->field_count() > 0) NewLine(depth, out);
  out->push_back('}');
}

}  // namespace

std::string JsonNumber(double value) { return Number(value, 17, false); }
std::string JsonNumber(float value) { return Number(value, 9, true); }

std::string JsonText(std::string_view text) {
  std::string out;
  AppendText(text, &out);
  return out;
}

std::string ToJson(const Message& message) {
  std::string out;
  Append(message, 0, &out);
  return out;
}

std::string EnumName(const google::protobuf::EnumValueDescriptor& value) {
  // The prefix is what all values of the enum have in common, up to a '_'.
  std::string prefix = value.type()->value(0)->name();
  for (int i = 1; i < value.type()->value_count(); ++i) {
    const std::string& name = value.type()->value(i)->name();
    const auto differ = std::mismatch(prefix.begin(), prefix.end(), name.begin(), name.end());
    prefix.erase(differ.first, prefix.end());
  }
  prefix.resize(prefix.rfind('_') + 1);
  return absl::AsciiStrToLower(value.name().substr(prefix.size()));
}

}  // namespace forebay::ctl
