#include "storage/segment_batch.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace forebay::storage {
namespace {

constexpr std::array<char, kSegmentPage> kZeros{};

bool IsPaged(const BlockRef& block) { return block->size() >= Block::kPagedBytes; }

WaitingPart Describe(const PayloadBuilder& builder, Part part,
                     const std::shared_ptr<FinishTicket>& ticket, size_t index) {
  WaitingPart waiting;
  waiting.ticket = ticket;
  waiting.index = index;
  waiting.head.bytes = builder.bytes(part);
  waiting.head.header_bytes = part == Part::kHot ? builder.header_bytes() : 0;
  waiting.head.crc = builder.Crc(part);
  return waiting;
}

}  // namespace

WaitingPart Take(PayloadBuilder& builder, const std::shared_ptr<FinishTicket>& ticket,
                 size_t index) {
  WaitingPart hot = Describe(builder, Part::kHot, ticket, index);
  const bool has_cold = builder.bytes(Part::kCold) > 0;
  WaitingPart cold;
  if (has_cold) cold = Describe(builder, Part::kCold, ticket, index);
  const PayloadBuilder::Blocks blocks = builder.Take();
  for (BlockRef& block : blocks.hot) hot.blocks.push_back(std::move(block));
  if (!has_cold) return hot;
  for (BlockRef& block : blocks.cold) cold.blocks.push_back(std::move(block));
  cold.hot = std::make_unique<WaitingPart>(std::move(hot));
  return cold;
}

uint64_t BytesOf(const WaitingPart& part) {
  return part.head.bytes + (part.hot != nullptr ? part.hot->head.bytes : 0);
}

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

uint64_t SegmentBatch::PlaceFor(const WaitingPart& part) const {
  if (!IsPaged(part.blocks.front())) return end_;
  return RoundUp(end_ + kRecordHeadBytes, kSegmentPage) - kRecordHeadBytes;
}

void SegmentBatch::Add(WaitingPart part) {
  const uint64_t place = PlaceFor(part);
  AddPadding(place - end_);
  part.head.id = IdOf({.segment = segment, .offset = place, .check = FoldCrc(part.head.crc)});
  heads_.push_back(std::make_unique<std::array<char, kRecordHeadBytes>>());
  EncodeRecordHead(part.head, heads_.back()->data());
  pieces_.push_back({{heads_.back()->data(), kRecordHeadBytes}});
  for (const BlockRef& block : part.blocks) {
    pieces_.push_back({{block->data(), block->size()}, IsPaged(block) ? block.get() : nullptr});
  }
  AddPadding(RecordBytes(part.head.bytes) - kRecordHeadBytes - part.head.bytes);
  end_ = place + RecordBytes(part.head.bytes);
  parts.push_back(std::move(part));
}

void SegmentBatch::Copy(Write* write, std::string_view bytes) {
  char* const to = buffer.data() + copied_;
  std::memcpy(to, bytes.data(), bytes.size());
  // Between two pieces that are not copied, one piece of the buffer.
  auto& pieces = write->pieces;
  if (pieces.empty() || pieces.back().data + pieces.back().size != to) pieces.push_back({to, 0});
  pieces.back().size += bytes.size();
  copied_ += bytes.size();
}

void SegmentBatch::AddTo(Write* write, const Piece& piece) {
  std::string_view bytes = piece.bytes.substr(in_piece_, buffer.size() - write->bytes);
  const bool lent = piece.block != nullptr && bytes.size() >= kSegmentPage &&
                    in_piece_ % kSegmentPage == 0 && write->bytes % kSegmentPage == 0;
  if (lent) {
    bytes = bytes.substr(0, bytes.size() / kSegmentPage * kSegmentPage);
    write->pieces.push_back({bytes.data(), bytes.size()});
    piece.block->Ref();
    held_.push_back(BlockRef::Adopt(piece.block));
  } else {
    Copy(write, bytes);
  }
  write->bytes += bytes.size();
  in_piece_ += bytes.size();
  if (in_piece_ < piece.bytes.size()) return;
  in_piece_ = 0;
  ++piece_;
}

SegmentBatch::Write SegmentBatch::Next() {
  Write write{.offset = begin_ + written_};
  copied_ = 0;
  held_.clear();
  const auto full = [&] {
    return write.bytes == buffer.size() ||
           (write.pieces.size() == io::Disk::kPiecesMax && write.bytes % kSegmentPage == 0);
  };
  while (piece_ < pieces_.size() && !full()) AddTo(&write, pieces_[piece_]);
  if (const size_t padding = RoundUp(write.bytes, kSegmentPage) - write.bytes; padding > 0) {
    Copy(&write, {kZeros.data(), padding});
    write.bytes += padding;
  }
  written_ += write.bytes;
  return write;
}

}  // namespace forebay::storage
