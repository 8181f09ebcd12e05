#include "codec/wire.h"

#include <array>

namespace forebay::codec {
namespace {

bool IsContinuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

// Length of the well-formed sequence at `p` that begins with a byte above 0x7f; 0 if there is none
// (Unicode, table 3-7).
size_t Utf8SequenceBytes(const uint8_t* p, size_t left) {
  const uint8_t lead = p[0];
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (left < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (!IsContinuation(p[i])) return 0;
  }
  const bool overlong = (lead == 0xe0 && p[1] < 0xa0) || (lead == 0xf0 && p[1] < 0x90);
  const bool surrogate = lead == 0xed && p[1] > 0x9f;
  const bool too_large = lead == 0xf4 && p[1] > 0x8f;
  return overlong || surrogate || too_large ? 0 : size;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  size_t left = text.size();
  while (left > 0) {
    if (left >= 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        p += 8;
        left -= 8;
        continue;
      }
    }
    const size_t size = *p < 0x80 ? 1 : Utf8SequenceBytes(p, left);
    if (size == 0) return false;
    p += size;
    left -= size;
  }
  return true;
}

void WireReader::Skip() {
  switch (type_) {
    case WireType::kVarint:
      Varint();
      return;
    case WireType::kFixed64:
      Fixed<uint64_t>();
      return;
    case WireType::kBytes:
      Bytes();
      return;
    case WireType::kFixed32:
      Fixed<uint32_t>();
      return;
    case WireType::kGroup:
      SkipGroup();
      return;
    case WireType::kGroupEnd:
      Fail();
      return;
  }
}

void WireReader::SkipGroup() {
  std::array<uint32_t, kDepthMax> open;  // field numbers of the groups around us
  int depth = 0;
  if (depth_ + 1 > kDepthMax) {
    Fail();
    return;
  }
  open[depth++] = field_;
  while (depth > 0 && ok_) {
    uint32_t tag = 0;
    if (at_ == end_ || !ReadTag(&at_, end_, &tag) || tag >> 3 == 0 || (tag & 7) > 5) {
      Fail();
      return;
    }
    field_ = tag >> 3;
    type_ = static_cast<WireType>(tag & 7);
    if (type_ == WireType::kGroupEnd) {
      if (open[--depth] != field_) Fail();
    } else if (type_ == WireType::kGroup) {
      if (depth_ + depth + 1 > kDepthMax) {
        Fail();
        return;
      }
      open[depth++] = field_;
    } else {
      Skip();
    }
  }
}

}  // namespace forebay::codec
