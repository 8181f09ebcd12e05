#include "storage/segment_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"

namespace forebay::storage {
namespace {

// The part of [from, from + size) that lies in [offset, offset + bytes.size()).
std::string_view Overlap(uint64_t from, uint64_t size, uint64_t offset, std::string_view bytes) {
  const uint64_t begin = std::max(from, offset);
  const uint64_t end = std::min(from + size, offset + bytes.size());
  return begin < end ? bytes.substr(begin - offset, end - begin) : std::string_view();
}

}  // namespace

BlockList NewBlocks(uint64_t bytes, PayloadBudget* budget) {
  BlockList blocks;
  while (bytes > 0) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(bytes, Block::kBytesMax));
    blocks.push_back(BlockRef::Adopt(Block::New(size, budget)));
    bytes -= size;
  }
  return blocks;
}

SegmentRun::SegmentRun(std::vector<RunItem> run_items, bool ahead)
    : items(std::move(run_items)), ahead(ahead) {
  FOREBAY_CHECK(!items.empty());
}

uint64_t SegmentRun::begin() const {
  return PlaceOf(items.front().head.id).offset / kSegmentPage * kSegmentPage;
}

uint64_t SegmentRun::end() const {
  const RecordHead& last = items.back().head;
  return RoundUp(PlaceOf(last.id).offset + kRecordHeadBytes + last.bytes, kSegmentPage);
}

void SegmentRun::Take(uint64_t offset, std::string_view bytes) {
  for (RunItem& item : items) {
    uint64_t at = PlaceOf(item.head.id).offset;
    if (at >= offset + bytes.size()) break;
    const auto head = Overlap(at, kRecordHeadBytes, offset, bytes);
    // A head never straddles two pieces: they are whole pages.
    if (!head.empty()) std::memcpy(item.stored_head, head.data(), head.size());
    at += kRecordHeadBytes;
    for (const BlockRef& block : item.blocks) {
      const auto part = Overlap(at, block->size(), offset, bytes);
      if (!part.empty()) {
        const uint64_t into = std::max(at, offset) - at;
        std::memcpy(block->data() + into, part.data(), part.size());
      }
      at += block->size();
    }
  }
}

absl::Status SegmentRun::Check(const RunItem& item) {
  const auto head = DecodeRecordHead({item.stored_head, kRecordHeadBytes});
  if (!head.ok()) return head.status();
  if (!(*head == item.head)) return absl::DataLossError("record head: of another payload");
  uint32_t crc = 0;
  for (const BlockRef& block : item.blocks) crc = Crc32c({block->data(), block->size()}, crc);
  return crc == item.head.crc ? absl::OkStatus() : absl::DataLossError("record: crc of the bytes");
}

}  // namespace forebay::storage
