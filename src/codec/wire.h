// The protobuf wire format, read and written in place: no allocation, no message objects.
//
// Reads what protobuf reads and refuses what it refuses, groups and invalid UTF-8 included, so that
// a hand decoder agrees with the generated code; the tests and fuzzers hold it to that. A reader
// turns not-ok on the first surprise and then gives zeros. Not thread-safe. The bytes are borrowed:
// views point into them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace forebay::codec {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

// Reads a varint at `*at`; false, with `*at` untouched, if it does not end before `end` or has more
// than ten bytes. Bits above the 64th are dropped, as protobuf drops them.
inline bool ReadVarint(const char** at, const char* end, uint64_t* value) {
  const char* p = *at;
  uint64_t result = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (p == end) return false;
    const auto byte = static_cast<uint8_t>(*p++);
    result |= uint64_t{byte & 0x7fu} << (shift & 63);
    if (byte < 0x80) {
      *value = result;
      *at = p;
      return true;
    }
  }
  return false;
}

// A field's tag: at most five bytes, of which 32 bits count.
inline bool ReadTag(const char** at, const char* end, uint32_t* tag) {
  uint64_t value = 0;
  const char* p = *at;
  if (!ReadVarint(&p, end, &value) || p - *at > 5) return false;
  *tag = static_cast<uint32_t>(value);
  *at = p;
  return true;
}

// The length of a length-delimited field: at most five bytes, and below 2 GiB as protobuf has it.
inline bool ReadSize(const char** at, const char* end, uint64_t* size) {
  constexpr uint64_t kSizeMax = 0x7fffffff - 16;
  if (*at != end && static_cast<uint8_t>(**at) < 0x80) {
    *size = static_cast<uint8_t>(*(*at)++);
    return true;
  }
  const char* p = *at;
  if (!ReadVarint(&p, end, size) || p - *at > 5 || *size > kSizeMax) return false;
  *at = p;
  return true;
}

bool IsUtf8(std::string_view text);

class WireReader {
 public:
  // `depth`: how many messages lie around this one.
  explicit WireReader(std::string_view in, int depth = 0)
      : at_(in.data()), end_(in.data() + in.size()), depth_(depth) {}

  // Goes to the next field; false at the end, or when the bytes are wrong (then ok() is false).
  // Each field's value is then read or skipped once.
  bool Next() {
    if (at_ == end_ || !ok_) return false;
    uint32_t tag = 0;
    const auto first = static_cast<uint8_t>(*at_);
    if (first < 0x80) {
      tag = first;
      ++at_;
    } else if (!ReadTag(&at_, end_, &tag)) {
      return Fail();
    }
    field_ = tag >> 3;
    type_ = static_cast<WireType>(tag & 7);
    if (field_ == 0 || (tag & 7) > 5 || type_ == WireType::kGroupEnd) return Fail();
    return true;
  }

  bool ok() const { return ok_; }
  uint32_t field() const { return field_; }
  WireType type() const { return type_; }
  int depth() const { return depth_; }
  // What has not been read yet.
  std::string_view rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  // The field and its type at once, to switch on.
  uint32_t tag() const { return field_ << 3 | static_cast<uint32_t>(type_); }

  uint64_t Varint() {
    if (at_ != end_ && static_cast<uint8_t>(*at_) < 0x80) return static_cast<uint8_t>(*at_++);
    uint64_t value = 0;
    if (!ReadVarint(&at_, end_, &value)) Fail();
    return value;
  }
  uint32_t Varint32() { return static_cast<uint32_t>(Varint()); }
  template <class T>
  requires(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) T Fixed() {
    T value{};
    if (end_ - at_ < static_cast<std::ptrdiff_t>(sizeof(T))) {
      Fail();
      return value;
    }
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string_view Bytes() {
    uint64_t size = 0;
    if (!ReadSize(&at_, end_, &size) || size > static_cast<uint64_t>(end_ - at_)) {
      Fail();
      return {};
    }
    std::string_view bytes(at_, size);
    at_ += size;
    return bytes;
  }
  // Bytes that are valid UTF-8, as proto3 demands of a string.
  std::string_view String() {
    std::string_view text = Bytes();
    if (!IsUtf8(text)) Fail();
    return text;
  }
  // A nested message.
  WireReader Message() {
    WireReader nested(Bytes(), depth_ + 1);
    if (depth_ + 1 > kDepthMax) Fail();
    return nested;
  }
  // A nested reader's verdict counts for this one too.
  void Require(bool ok) {
    if (!ok) Fail();
  }
  void Skip();

 private:
  static constexpr int kDepthMax = 100;  // protobuf's default

  bool Fail() {
    ok_ = false;
    at_ = end_;
    return false;
  }
  void SkipGroup();

  const char* at_;
  const char* end_;
  int depth_;
  bool ok_ = true;
  WireType type_ = WireType::kVarint;
  uint32_t field_ = 0;
};

// The tag to switch on for a field of a type.
constexpr uint32_t Tag(uint32_t field, WireType type) {
  return field << 3 | static_cast<uint32_t>(type);
}
constexpr uint32_t VarintTag(uint32_t field) { return Tag(field, WireType::kVarint); }
constexpr uint32_t BytesTag(uint32_t field) { return Tag(field, WireType::kBytes); }
constexpr uint32_t Fixed32Tag(uint32_t field) { return Tag(field, WireType::kFixed32); }
constexpr uint32_t Fixed64Tag(uint32_t field) { return Tag(field, WireType::kFixed64); }

constexpr size_t VarintSize(uint64_t value) {
  return static_cast<size_t>((std::bit_width(value | 1) + 6) / 7);
}

// Appends fields to a string. A scalar that is zero and a string that is empty are left out, as
// proto3 leaves them out.
class WireWriter {
 public:
  explicit WireWriter(std::string* out) : out_(out) {}

  void Varint(uint32_t field, uint64_t value) {
    if (value == 0) return;
    RawVarint(VarintTag(field));
    RawVarint(value);
  }
  template <class T>
  requires(std::is_trivially_copyable_v<T> &&
           (sizeof(T) == 4 || sizeof(T) == 8)) void Fixed(uint32_t field, T value) {
    if (value == T{}) return;
    RawVarint(sizeof(T) == 4 ? Fixed32Tag(field) : Fixed64Tag(field));
    RawFixed(value);
  }
  void Bytes(uint32_t field, std::string_view value) {
    if (!value.empty()) Message(field, value);
  }
  // A nested message that is encoded already; written even if it is empty.
  void Message(uint32_t field, std::string_view encoded) {
    MessageHead(field, encoded.size());
    out_->append(encoded);
  }
  // Tag and length of a nested message; its fields follow.
  void MessageHead(uint32_t field, size_t size) {
    RawVarint(BytesTag(field));
    RawVarint(size);
  }
  void RawVarint(uint64_t value) {
    char bytes[10];
    size_t size = 0;
    while (value >= 0x80) {
      bytes[size++] = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    bytes[size++] = static_cast<char>(value);
    out_->append(bytes, size);
  }
  template <class T>
  void RawFixed(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_->append(bytes, sizeof(T));
  }
  void Raw(std::string_view bytes) { out_->append(bytes); }

 private:
  std::string* out_;
};

}  // namespace forebay::codec
