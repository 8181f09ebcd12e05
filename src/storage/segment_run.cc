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

std::vector<absl::Span<char>> SegmentRun::Targets(uint64_t from, uint64_t to, char* buffer) const {
  std::vector<absl::Span<char>> targets;
  uint64_t at = from;
  const auto to_buffer = [&](uint64_t until) {
    if (until <= at) return;
    targets.emplace_back(buffer + (at - from), until - at);
    at = until;
  };
  for (const RunItem& item : items) {
    uint64_t begin = PlaceOf(item.head.id).offset + kRecordHeadBytes;
    for (const BlockRef& block : item.blocks) {
      // Its memory ends with a page, as it begins with one.
      const uint64_t end = begin + RoundUp(block->size(), kSegmentPage);
      const bool fits = block->size() >= Block::kPagedBytes && begin % kSegmentPage == 0;
      const uint64_t first = std::max(begin, from), last = std::min(end, to);
      if (fits && first < last) {
        to_buffer(first);
        targets.emplace_back(block->data() + (first - begin), last - first);
        at = last;
      }
      begin += block->size();
    }
  }
  to_buffer(to);
  return targets;
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
