// Records that lie side by side in a segment and are read together, each into blocks of its own:
// straight into them where a block takes whole pages of the file, by way of a buffer elsewhere.
//
// Pieces of it may arrive in any order and from any thread, each byte once; the rest belongs to one
// thread at a time. Memory comes out of a reservation that the caller made.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "storage/payload_store.h"
#include "storage/segment_format.h"

namespace forebay::storage {

struct RunItem {
  RecordHead head;    // as the store knows it
  PayloadId payload;  // of which it is a part
  char stored_head[kRecordHeadBytes] = {};
  BlockList blocks;
  uint32_t damaged = 0;  // how often it was read and was not right
  uint32_t failed = 0;   // how often it could not be read
  uint64_t failing_since_ms = 0;
  uint32_t failed_alone = 0;  // how often in a row, though the head of its file was read then
};

// Blocks for `bytes` bytes, out of a reservation of their footprint.
BlockList NewBlocks(uint64_t bytes, PayloadBudget* budget);

class SegmentRun {
 public:
  // At least one item, all of one segment, in order of offset.
  SegmentRun(std::vector<RunItem> items, bool ahead);

  uint32_t segment() const { return PlaceOf(items.front().head.id).segment; }
  // Whole pages.
  uint64_t begin() const;
  uint64_t end() const;
  // Where the file's bytes from `from` to `to`, whole pages, are to be read to, one piece after the
  // other: blocks, and parts of `buffer`, which has BufferBytes. A block's last page holds what
  // follows in the file too.
  std::vector<absl::Span<char>> Targets(uint64_t from, uint64_t to, char* buffer) const;
  uint64_t BufferBytes(uint64_t from, uint64_t to) const;
  // Takes bytes of the file, from `offset` on, from wherever they were read to.
  void Take(uint64_t offset, std::string_view bytes);
  // Whether the item's head and bytes are what was written.
  static absl::Status Check(const RunItem& item);

  std::vector<RunItem> items;
  const bool ahead;
  std::atomic<uint32_t> pieces_left{0};
  absl::Status status;  // the first error of a piece; under the reader's lock
};

}  // namespace forebay::storage
