// Puts the frames of one fetched micro-batch together: the layout says where the bytes go, each is
// copied once.
//
// One thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/fetch_frame.h"
#include "forebay/micro_batch.h"

namespace forebay::v1 {
class MicroBatchLayout;
}

namespace forebay::client {

class Assembly {
 public:
  explicit Assembly(const FetchSpec* spec) : spec_(spec) {}

  // The next frame of the answer.
  absl::Status Add(const FetchFrameView& frame);
  bool complete() const { return complete_; }
  uint64_t bytes() const { return bytes_; }
  MicroBatch Take() { return std::move(batch_); }

 private:
  absl::Status Begin(const std::string& layout);
  absl::Status FindPlaces(const v1::MicroBatchLayout& layout);

  const FetchSpec* spec_;
  MicroBatch batch_;
  bool begun_ = false;
  bool complete_ = false;
  std::vector<char*> places_;  // of the columns
  uint64_t bytes_ = 0;         // of all columns
  size_t column_ = 0;          // that is being filled
  uint64_t offset_ = 0;        // in it
};

}  // namespace forebay::client
