// Reads a FetchFrame from the pieces that the transport delivered, without copying the data.
//
// Pure functions; views point into the pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace forebay::client {

struct FetchFrameView {
  uint64_t id = 0;
  bool has_layout = false;
  std::string layout;  // encoded MicroBatchLayout
  std::vector<std::string_view> data;
  bool last = false;
  int error_code = 0;
  std::string error_message;
};

// False if the pieces hold no FetchFrame.
bool ReadFetchFrame(absl::Span<const std::string_view> pieces, FetchFrameView* frame);

}  // namespace forebay::client
