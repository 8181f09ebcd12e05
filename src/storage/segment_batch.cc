#include "storage/segment_batch.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"

namespace forebay::storage {
namespace {

constexpr std::array<char, kSegmentPage> kZeros{};

}  // namespace

void SegmentBatch::AddBytes(std::string bytes) {
  FOREBAY_CHECK(bytes.size() % kSegmentPage == 0 && end_ % kSegmentPage == 0);
  end_ += bytes.size();
  // A list of strings moves its short ones, but a page is none.
  texts_.push_back(std::move(bytes));
  pieces_.push_back({texts_.back()});
}

void SegmentBatch::AddPadding(uint64_t bytes) {
  if (bytes > 0) pieces_.push_back({{kZeros.data(), static_cast<size_t>(bytes)}});
}

void SegmentBatch::Add(WaitingPayload payload) {
  payload.head.id = IdOf({.segment = segment, .offset = end_, .check = FoldCrc(payload.head.crc)});
  heads_.push_back(std::make_unique<std::array<char, kRecordHeadBytes>>());
  EncodeRecordHead(payload.head, heads_.back()->data());
  pieces_.push_back({{heads_.back()->data(), kRecordHeadBytes}});
  for (const BlockRef& block : payload.blocks) {
    pieces_.push_back({{block->data(), block->size()}, payloads.size()});
  }
  pieces_.back().last = true;
  AddPadding(RecordBytes(payload.head.bytes) - kRecordHeadBytes - payload.head.bytes);
  end_ += RecordBytes(payload.head.bytes);
  payloads.push_back(std::move(payload));
  damaged_.push_back(false);
}

size_t SegmentBatch::Fill(uint64_t* offset) {
  *offset = begin_ + written_;
  size_t filled = 0;
  while (filled < buffer.size() && piece_ < pieces_.size()) {
    const Piece& piece = pieces_[piece_];
    const size_t size = std::min(piece.bytes.size() - in_piece_, buffer.size() - filled);
    char* const to = buffer.data() + filled;
    const char* const from = piece.bytes.data() + in_piece_;
    if (piece.payload == SIZE_MAX) {
      std::memcpy(to, from, size);
    } else {
      crc_ = CopyCrc32c(to, from, size, crc_);
    }
    filled += size;
    in_piece_ += size;
    if (in_piece_ < piece.bytes.size()) break;
    if (piece.last) {
      damaged_[piece.payload] = std::exchange(crc_, 0) != payloads[piece.payload].head.crc;
    }
    in_piece_ = 0;
    ++piece_;
  }
  const size_t padded = RoundUp(filled, kSegmentPage);
  std::memset(buffer.data() + filled, 0, padded - filled);
  written_ += padded;
  return padded;
}

}  // namespace forebay::storage
