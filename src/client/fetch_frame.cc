#include "client/fetch_frame.h"

#include <algorithm>

#include "codec/wire.h"

namespace forebay::client {
namespace {

// Walks over pieces as if they were one.
class Cursor {
 public:
  explicit Cursor(absl::Span<const std::string_view> pieces) : pieces_(pieces) { Settle(); }

  bool AtEnd() const { return piece_ == pieces_.size(); }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (AtEnd()) return false;
      const auto byte = static_cast<uint8_t>(pieces_[piece_][offset_]);
      Advance(1);
      *value |= uint64_t{byte & 0x7fu} << (shift & 63);
      if (byte < 0x80) return true;
    }
    return false;
  }
  // Hands out the next `size` bytes span by span; false if there are fewer.
  template <class Take>
  bool Bytes(uint64_t size, Take take) {
    while (size > 0) {
      if (AtEnd()) return false;
      const std::string_view part = pieces_[piece_].substr(offset_, size);
      take(part);
      size -= part.size();
      Advance(part.size());
    }
    return true;
  }

 private:
  void Advance(size_t size) {
    offset_ += size;
    Settle();
  }
  void Settle() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].size()) {
      ++piece_;
      offset_ = 0;
    }
  }

  absl::Span<const std::string_view> pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

bool SkipField(Cursor* cursor, codec::WireType type) {
  uint64_t value = 0;
  const auto nothing = [](std::string_view) {};
  switch (type) {
    case codec::WireType::kVarint:
      return cursor->Varint(&value);
    case codec::WireType::kFixed64:
      return cursor->Bytes(8, nothing);
    case codec::WireType::kFixed32:
      return cursor->Bytes(4, nothing);
    case codec::WireType::kBytes:
      return cursor->Varint(&value) && cursor->Bytes(value, nothing);
    default:
      return false;
  }
}

bool ReadField(Cursor* cursor, uint64_t tag, FetchFrameView* frame) {
  uint64_t value = 0;
  const auto append_to = [](std::string* text) {
    return [text](std::string_view part) { text->append(part); };
  };
  switch (tag) {
    case codec::VarintTag(1):
      return cursor->Varint(&frame->id);
    case codec::BytesTag(2):
      frame->has_layout = true;
      return cursor->Varint(&value) && cursor->Bytes(value, append_to(&frame->layout));
    case codec::BytesTag(3):
      frame->data.clear();  // the last one counts, as protobuf has it
      return cursor->Varint(&value) &&
             cursor->Bytes(value, [frame](std::string_view part) { frame->data.push_back(part); });
    case codec::VarintTag(4):
      if (!cursor->Varint(&value)) return false;
      frame->last = value != 0;
      return true;
    case codec::VarintTag(5):
      if (!cursor->Varint(&value)) return false;
      frame->error_code = static_cast<int>(value);
      return true;
    case codec::BytesTag(6):
      frame->error_message.clear();
      return cursor->Varint(&value) && cursor->Bytes(value, append_to(&frame->error_message));
    default:
      return SkipField(cursor, static_cast<codec::WireType>(tag & 7));
  }
}

}  // namespace

bool ReadFetchFrame(absl::Span<const std::string_view> pieces, FetchFrameView* frame) {
  *frame = {};
  Cursor cursor(pieces);
  while (!cursor.AtEnd()) {
    uint64_t tag = 0;
    if (!cursor.Varint(&tag) || !ReadField(&cursor, tag, frame)) return false;
  }
  return true;
}

}  // namespace forebay::client
