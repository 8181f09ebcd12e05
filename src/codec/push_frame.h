// Splits a PushFrame as gRPC delivers it, a list of slices, into header bytes and payload slices;
// payload is never copied.
//
// Reused between frames. Header views point into the slices, or, where a header lies across two of
// them, into a small copy held here. Pure; one splitter belongs to one thread; the slices must
// outlive the views.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "codec/rollout_header.h"

namespace forebay::codec {

class PushFrameView {
 public:
  // False if the slices hold no PushFrame within the limits; error() says why.
  bool Split(absl::Span<const std::string_view> slices);

  uint64_t session() const { return session_; }
  uint64_t frame() const { return frame_; }
  absl::Span<const std::string_view> rollouts() const { return rollouts_; }
  // The payload in order; no view is empty.
  absl::Span<const std::string_view> payload() const { return payload_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  // An encoded GroupHeader.
  bool has_group() const { return has_group_; }
  std::string_view group() const { return group_; }
  const FieldError& error() const { return error_; }

 private:
  class Cursor;
  bool Field(Cursor& cursor, uint64_t tag);
  bool Fail(std::string_view field, std::string_view message);

  uint64_t session_ = 0;
  uint64_t frame_ = 0;
  std::vector<std::string_view> rollouts_;
  std::vector<std::string_view> payload_;
  uint64_t payload_bytes_ = 0;
  bool has_group_ = false;
  std::string_view group_;
  std::deque<std::string> copies_;  // of what lies across slices; a deque keeps them in place
  FieldError error_;
};

struct GroupHeader {
  std::string_view source;
  std::string_view external_id;
  std::string_view payload;
  uint64_t request_id = 0;
};
bool DecodeGroupHeader(std::string_view bytes, GroupHeader* group);

}  // namespace forebay::codec
