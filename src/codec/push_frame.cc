#include "codec/push_frame.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "codec/wire.h"

namespace forebay::codec {

// Reads across slices. What lies within one slice is read in place.
class PushFrameView::Cursor {
 public:
  explicit Cursor(absl::Span<const std::string_view> slices) : slices_(slices) {
    for (std::string_view slice : slices) left_ += slice.size();
    NextSlice();
  }

  uint64_t left() const { return left_; }

  template <class T>
  bool Read(bool (*read)(const char**, const char*, T*), T* value) {
    constexpr std::ptrdiff_t kLongest = 10;
    if (end_ - at_ >= kLongest || static_cast<uint64_t>(end_ - at_) == left_) {
      const char* before = at_;
      if (!read(&at_, end_, value)) return false;
      left_ -= static_cast<uint64_t>(at_ - before);
      if (at_ == end_) NextSlice();
      return true;
    }
    char bytes[kLongest];
    const size_t size = std::min<uint64_t>(kLongest, left_);
    Peek(bytes, size);
    const char* at = bytes;
    if (!read(&at, bytes + size, value)) return false;
    Advance(static_cast<size_t>(at - bytes), [](std::string_view) {});
    return true;
  }

  // Passes the next `size` bytes, at most left(), to `f` piece by piece.
  template <class F>
  void Advance(uint64_t size, F&& f) {
    left_ -= size;
    while (size > 0) {
      const uint64_t piece = std::min<uint64_t>(size, static_cast<uint64_t>(end_ - at_));
      f(std::string_view(at_, piece));
      at_ += piece;
      size -= piece;
      if (at_ == end_) NextSlice();
    }
  }

  // The next `size` bytes, at most left(), in one piece: a view if they are, else a copy.
  std::string_view Contiguous(uint64_t size, std::deque<std::string>* copies) {
    if (static_cast<uint64_t>(end_ - at_) >= size) {
      std::string_view view(at_, size);
      Advance(size, [](std::string_view) {});
      return view;
    }
    std::string& copy = copies->emplace_back();
    copy.reserve(size);
    Advance(size, [&copy](std::string_view piece) { copy.append(piece); });
    return copy;
  }

 private:
  void NextSlice() {
    at_ = end_ = nullptr;
    while (next_ < slices_.size() && at_ == end_) {
      at_ = slices_[next_].data();
      end_ = at_ + slices_[next_].size();
      ++next_;
    }
  }

  void Peek(char* to, size_t size) const {
    const char* at = at_;
    const char* end = end_;
    size_t next = next_;
    while (size > 0) {
      const size_t piece = std::min(size, static_cast<size_t>(end - at));
      if (piece > 0) std::memcpy(to, at, piece);
      to += piece;
      size -= piece;
      if (size > 0) {
        at = slices_[next].data();
        end = at + slices_[next].size();
        ++next;
      }
    }
  }

  absl::Span<const std::string_view> slices_;
  size_t next_ = 0;  // slice after the one that at_ is in
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  uint64_t left_ = 0;
};

namespace {

bool ReadFixed64(const char** at, const char* end, uint64_t* value) {
  if (end - *at < 8) return false;
  std::memcpy(value, *at, 8);
  *at += 8;
  return true;
}

bool ReadFixed32(const char** at, const char* end, uint32_t* value) {
  if (end - *at < 4) return false;
  std::memcpy(value, *at, 4);
  *at += 4;
  return true;
}

}  // namespace

bool PushFrameView::Fail(std::string_view field, std::string_view message) {
  error_.field = field;
  error_.message = message;
  return false;
}

bool PushFrameView::Split(absl::Span<const std::string_view> slices) {
  session_ = 0;
  frame_ = 0;
  rollouts_.clear();
  payload_.clear();
  payload_bytes_ = 0;
  has_group_ = false;
  group_ = {};
  copies_.clear();
  error_ = {};
  Cursor cursor(slices);
  while (cursor.left() > 0) {
    uint32_t tag = 0;
    if (!cursor.Read(&ReadTag, &tag) || tag >> 3 == 0) return Fail("frame", "is no PushFrame");
    if (!Field(cursor, tag)) return error_.ok() ? Fail("frame", "is no PushFrame") : false;
  }
  return true;
}

bool PushFrameView::Field(Cursor& cursor, uint64_t tag) {
  if (tag == Fixed64Tag(1)) return cursor.Read(&ReadFixed64, &session_);
  if (tag == VarintTag(2)) return cursor.Read(&ReadVarint, &frame_);
  uint64_t value = 0;
  uint32_t value32 = 0;
  switch (static_cast<WireType>(tag & 7)) {
    case WireType::kVarint:
      return cursor.Read(&ReadVarint, &value);
    case WireType::kFixed64:
      return cursor.Read(&ReadFixed64, &value);
    case WireType::kFixed32:
      return cursor.Read(&ReadFixed32, &value32);
    case WireType::kBytes:
      break;
    default:
      return false;  // groups, which proto3 cannot say
  }
  if (!cursor.Read(&ReadSize, &value) || value > cursor.left()) return false;
  switch (tag >> 3) {
    case 3:
      if (rollouts_.size() == kFrameRolloutsMax) {
        return Fail("rollouts", "has more than " + std::to_string(kFrameRolloutsMax) + " entries");
      }
      if (value > kHeaderBytesMax) {
        return Fail(
            "rollouts[" + std::to_string(rollouts_.size()) + "]",
            "has " + std::to_string(value) + " bytes, at most " + std::to_string(kHeaderBytesMax));
      }
      rollouts_.push_back(cursor.Contiguous(value, &copies_));
      return true;
    case 4:
      payload_.clear();
      payload_bytes_ = value;
      cursor.Advance(value, [this](std::string_view piece) { payload_.push_back(piece); });
      return true;
    case 5:
      // protobuf would merge them.
      if (has_group_) return Fail("group", "comes twice");
      group_ = cursor.Contiguous(value, &copies_);
      has_group_ = true;
      return true;
    default:
      cursor.Advance(value, [](std::string_view) {});
      return true;
  }
}

bool DecodeGroupHeader(std::string_view bytes, GroupHeader* group) {
  *group = {};
  WireReader r(bytes);
  while (r.Next()) {
    switch (r.tag()) {
      case BytesTag(1):
        group->source = r.String();
        break;
      case BytesTag(2):
        group->external_id = r.String();
        break;
      case BytesTag(3):
        group->payload = r.Bytes();
        break;
      case Fixed64Tag(4):
        group->request_id = r.Fixed<uint64_t>();
        break;
      default:
        r.Skip();
    }
  }
  return r.ok();
}

}  // namespace forebay::codec
