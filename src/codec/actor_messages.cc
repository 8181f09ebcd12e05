#include "codec/actor_messages.h"

#include "codec/wire.h"

namespace forebay::codec {
namespace {

// Size of Assignment's own fields at most: six of up to nine bytes, five varints of up to six.
constexpr size_t kAssignmentFieldsMax = 96;

// Writes fields of known size into a buffer of the stack; what is zero is left out.
class SmallWriter {
 public:
  explicit SmallWriter(char* at) : at_(at), begin_(at) {}
  void Varint(uint32_t field, uint64_t value) {
    if (value == 0) return;
    *at_++ = static_cast<char>(VarintTag(field));
    while (value >= 0x80) {
      *at_++ = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    *at_++ = static_cast<char>(value);
  }
  template <class T>
  void Fixed(uint32_t field, T value) {
    if (value == 0) return;
    *at_++ = static_cast<char>(sizeof(T) == 4 ? Fixed32Tag(field) : Fixed64Tag(field));
    std::memcpy(at_, &value, sizeof(T));
    at_ += sizeof(T);
  }
  size_t size() const { return static_cast<size_t>(at_ - begin_); }

 private:
  char* at_;
  char* begin_;
};

template <class T>
void ReadRepeated(WireReader& r, std::vector<T>* out, bool* ok) {
  if (r.type() == WireType::kVarint) {
    out->push_back(static_cast<T>(r.Varint()));
    return;
  }
  WireReader packed(r.Bytes());
  while (packed.ok() && !packed.rest().empty()) out->push_back(static_cast<T>(packed.Varint()));
  *ok &= packed.ok();
}

template <class T>
void ReadFixedRepeated(WireReader& r, std::vector<T>* out, bool* ok) {
  if (r.type() != WireType::kBytes) {
    out->push_back(r.Fixed<T>());
    return;
  }
  const std::string_view packed = r.Bytes();
  *ok &= packed.size() % sizeof(T) == 0;
  const size_t count = packed.size() / sizeof(T);
  const size_t before = out->size();
  out->resize(before + count);
  if (count > 0) std::memcpy(out->data() + before, packed.data(), count * sizeof(T));
}

void DecodePolicyVersion(WireReader r, AcquireRequest* request, bool* ok) {
  while (r.Next()) {
    switch (r.tag()) {
      case BytesTag(1):
        request->policy = r.String();
        break;
      case VarintTag(2):
        request->version.branch = r.Varint32();
        break;
      case VarintTag(3):
        request->version.number = r.Varint32();
        break;
      default:
        r.Skip();
    }
  }
  *ok &= r.ok();
}

}  // namespace

void AppendTaskContent(std::string_view external_id, std::string_view payload,
                       std::string_view attributes, std::string* out) {
  WireWriter writer(out);
  writer.Bytes(11, external_id);
  writer.Bytes(12, payload);
  writer.Bytes(13, attributes);
}

bool DecodeTaskContent(std::string_view bytes, TaskContent* content) {
  *content = {};
  WireReader r(bytes);
  while (r.Next()) {
    switch (r.tag()) {
      case BytesTag(11):
        content->external_id = r.String();
        break;
      case BytesTag(12):
        content->payload = r.Bytes();
        break;
      case BytesTag(13):
        content->attributes = r.Bytes();
        break;
      default:
        r.Skip();
    }
  }
  return r.ok();
}

void AppendAssignment(const AssignmentFields& fields, std::string_view content,
                      std::string_view partial, std::string* out) {
  char bytes[kAssignmentFieldsMax];
  SmallWriter small(bytes);
  small.Fixed(1, fields.attempt_id);
  small.Fixed(2, fields.token);
  small.Fixed(3, fields.seed);
  small.Fixed(4, fields.group_id);
  small.Varint(5, fields.attempt);
  small.Varint(6, fields.source);
  small.Varint(7, fields.version.branch);
  small.Varint(8, fields.version.number);
  small.Varint(9, fields.lease_ms);
  small.Fixed(10, fields.eval_run);
  small.Fixed(15, fields.task_id);
  const size_t partial_size = partial.empty() ? 0 : 1 + VarintSize(partial.size()) + partial.size();
  WireWriter writer(out);
  writer.MessageHead(1, small.size() + content.size() + partial_size);
  out->append(bytes, small.size());
  out->append(content);
  writer.Bytes(14, partial);
}

void AppendAcquireTail(absl::Span<const std::string> source_infos, std::string_view reason,
                       uint32_t retry_after_ms, std::string* out) {
  WireWriter writer(out);
  for (const std::string& info : source_infos) writer.Message(2, info);
  writer.Bytes(3, reason);
  writer.Varint(4, retry_after_ms);
}

void AcquireRequest::Clear() {
  session = 0;
  request_id = 0;
  max = 0;
  sources.clear();
  policy = {};
  version = {};
  loads_any_version = false;
  wait_ms = 0;
}

bool DecodeAcquireRequest(std::string_view bytes, AcquireRequest* request) {
  request->Clear();
  WireReader r(bytes);
  bool ok = true;
  while (r.Next()) {
    switch (r.tag()) {
      case Fixed64Tag(1):
        request->session = r.Fixed<uint64_t>();
        break;
      case VarintTag(2):
        request->request_id = r.Varint();
        break;
      case VarintTag(3):
        request->max = r.Varint32();
        break;
      case BytesTag(4):
        request->sources.push_back(r.String());
        break;
      case BytesTag(5):
        DecodePolicyVersion(r.Message(), request, &ok);
        break;
      case VarintTag(6):
        request->loads_any_version = r.Varint() != 0;
        break;
      case VarintTag(7):
        request->wait_ms = r.Varint32();
        break;
      default:
        r.Skip();
    }
  }
  return ok && r.ok();
}

void RenewRequest::Clear() {
  session = 0;
  attempt_ids.clear();
  tokens.clear();
  generated_tokens.clear();
  usage = {};
}

bool DecodeRenewRequest(std::string_view bytes, RenewRequest* request) {
  request->Clear();
  WireReader r(bytes);
  bool ok = true;
  while (r.Next()) {
    switch (r.tag()) {
      case Fixed64Tag(1):
        request->session = r.Fixed<uint64_t>();
        break;
      case BytesTag(2):
      case Fixed64Tag(2):
        ReadFixedRepeated(r, &request->attempt_ids, &ok);
        break;
      case BytesTag(3):
      case Fixed32Tag(3):
        ReadFixedRepeated(r, &request->tokens, &ok);
        break;
      case BytesTag(4):
      case VarintTag(4):
        ReadRepeated(r, &request->generated_tokens, &ok);
        break;
      case BytesTag(5): {
        WireReader usage = r.Message();
        request->usage = usage.rest();
        while (usage.Next()) usage.Skip();
        ok &= usage.ok();
        break;
      }
      default:
        r.Skip();
    }
  }
  return ok && r.ok();
}

void AppendPushReply(uint64_t frame, uint32_t accepted, absl::Span<const OutcomeFields> outcomes,
                     std::string* out) {
  WireWriter writer(out);
  writer.Varint(1, frame);
  writer.Varint(2, accepted);
  for (const OutcomeFields& outcome : outcomes) {
    char bytes[kAssignmentFieldsMax];
    SmallWriter small(bytes);
    small.Varint(1, outcome.index);
    small.Fixed(2, outcome.attempt_id);
    small.Varint(3, outcome.result);
    const auto text_size = [](std::string_view text) {
      return text.empty() ? 0 : 1 + VarintSize(text.size()) + text.size();
    };
    writer.MessageHead(3, small.size() + text_size(outcome.field) + text_size(outcome.message));
    out->append(bytes, small.size());
    writer.Bytes(4, outcome.field);
    writer.Bytes(5, outcome.message);
  }
}

}  // namespace forebay::codec
