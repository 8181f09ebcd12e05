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

// Of a file.
struct Range {
  uint64_t begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
  Range Within(uint64_t from, uint64_t to) const {
    const Range within{std::max(begin, from), std::min(end, to)};
    return within.begin < within.end ? within : Range();
  }
};

// The pages that are read straight into a block whose bytes begin at `begin`: none, or all that
// have bytes of it. Its memory ends with a page, as it begins with one.
Range Whole(const BlockRef& block, uint64_t begin) {
  if (block->size() < Block::kPagedBytes || begin % kSegmentPage != 0) return {};
  return {begin, begin + RoundUp(block->size(), kSegmentPage)};
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

std::vector<absl::Span<char>> SegmentRun::Targets(uint64_t from, uint64_t to, char* buffer) const {
  std::vector<absl::Span<char>> targets;
  uint64_t at = from;
  const auto to_buffer = [&](uint64_t until) {
    if (until <= at) return;
    targets.emplace_back(buffer, until - at);
    buffer += until - at;
    at = until;
  };
  for (const RunItem& item : items) {
    uint64_t begin = PlaceOf(item.head.id).offset + kRecordHeadBytes;
    for (const BlockRef& block : item.blocks) {
      const Range range = Whole(block, begin).Within(from, to);
      if (range.size() > 0) {
        to_buffer(range.begin);
        targets.emplace_back(block->data() + (range.begin - begin), range.size());
        at = range.end;
      }
      begin += block->size();
    }
  }
  to_buffer(to);
  return targets;
}

uint64_t SegmentRun::BufferBytes(uint64_t from, uint64_t to) const {
  uint64_t bytes = to - from;
  for (const RunItem& item : items) {
    uint64_t begin = PlaceOf(item.head.id).offset + kRecordHeadBytes;
    for (const BlockRef& block : item.blocks) {
      bytes -= Whole(block, begin).Within(from, to).size();
      begin += block->size();
    }
  }
  return bytes;
}

void SegmentRun::Take(uint64_t offset, std::string_view bytes) {
  // From the last one that begins at or before `offset`.
  auto first = std::upper_bound(
      items.begin(), items.end(), offset,
      [](uint64_t at, const RunItem& item) { return at < PlaceOf(item.head.id).offset; });
  if (first != items.begin()) --first;
  for (; first != items.end(); ++first) {
    RunItem& item = *first;
    uint64_t at = PlaceOf(item.head.id).offset;
    if (at >= offset + bytes.size()) break;
    const auto head = Overlap(at, kRecordHeadBytes, offset, bytes);
    // A head never straddles two pieces: they are whole pages.
    if (!head.empty()) std::memcpy(item.stored_head, head.data(), head.size());
    at += kRecordHeadBytes;
    for (const BlockRef& block : item.blocks) {
      const auto part = Overlap(at, block->size(), offset, bytes);
      if (!part.empty()) {
        char* const into = block->data() + (std::max(at, offset) - at);
        if (into != part.data()) std::memcpy(into, part.data(), part.size());
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
