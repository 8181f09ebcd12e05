// Decodes rollout headers that resemble each other, as those of one run do: all but the numbers in
// them is the same, byte for byte.
//
// A header that passed its check can be remembered as a layout: its fixed bytes, and where its
// numbers lie. A later header with the same fixed bytes and numbers of the same widths is decoded
// by reading the numbers alone, into what the first one was decoded to; every other header takes
// the long way. Both ways give the same. A few layouts are kept, those used last. Not thread-safe.
// Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "codec/rollout_header.h"

namespace forebay::codec {

class HeaderDecoder {
 public:
  HeaderDecoder();
  ~HeaderDecoder();

  // As DecodeRolloutHeader; nullptr with `error` set where that returns false. The header lives
  // until the next call; its text views point into `bytes` or into this.
  const RolloutHeader* Decode(std::string_view bytes, FieldError* error);
  // What the last Decode returned, of `bytes`, has passed CheckRolloutHeader. Does nothing for a
  // known layout, and not each time for those that are not: making one costs more than decoding.
  void Remember(std::string_view bytes) {
    if (layout_ == 0) Make(bytes);
  }
  // The number of the last header's layout: of headers with the same one, those after the first
  // differ from it in numbers alone. 0: none is known.
  uint64_t layout() const { return layout_; }

  static constexpr size_t kLayoutsMax = 8;
  static constexpr size_t kLayoutBytesMax = 1024;

 private:
  struct Layout;

  void Make(std::string_view bytes);

  std::vector<std::unique_ptr<Layout>> layouts_;  // the last used first
  uint64_t layout_ = 0;
  uint64_t last_layout_ = 0;
  // Grows with each header, is spent by making layouts: where nothing repeats, few are made.
  uint32_t credit_;
  RolloutHeader header_;
};

}  // namespace forebay::codec
