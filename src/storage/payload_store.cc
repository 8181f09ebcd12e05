#include "storage/payload_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/crc32c.h"

namespace forebay::storage {
namespace {

constexpr absl::string_view kLostUrl = "forebay/lost";

absl::Status WithLost(absl::Status status, const std::vector<PayloadId>& payloads) {
  std::string ids;
  for (const PayloadId id : payloads) absl::StrAppend(&ids, ids.empty() ? "" : " ", id.value);
  status.SetPayload(kLostUrl, absl::Cord(ids));
  return status;
}

void AddSlices(const BlockList& blocks, uint64_t offset, uint64_t size,
               std::vector<BlockSlice>* out) {
  while (size > 0) {
    const BlockRef& block = blocks[offset / Block::kBytesMax];
    const uint64_t in_block = offset % Block::kBytesMax;
    const uint64_t piece = std::min<uint64_t>(size, block->size() - in_block);
    out->push_back({block, block->data() + in_block, static_cast<size_t>(piece)});
    offset += piece;
    size -= piece;
  }
}

}  // namespace

absl::Status LostStatus(PayloadId payload, std::string_view what) {
  return WithLost(absl::DataLossError(absl::string_view(what.data(), what.size())), {payload});
}

absl::Status MissingStatus(PayloadId payload) {
  return WithLost(absl::NotFoundError(absl::StrCat("no payload ", absl::Hex(payload.value))),
                  {payload});
}

std::vector<PayloadId> LostOf(const absl::Status& status) {
  std::vector<PayloadId> payloads;
  const auto ids = status.GetPayload(kLostUrl);
  if (!ids.has_value()) return payloads;
  for (const absl::string_view id : absl::StrSplit(std::string(*ids), ' ')) {
    uint64_t value = 0;
    if (absl::SimpleAtoi(id, &value)) payloads.push_back(PayloadId(value));
  }
  return payloads;
}

absl::Status JoinLost(const absl::Status& first, const absl::Status& second) {
  std::vector<PayloadId> payloads = LostOf(first);
  const std::vector<PayloadId> more = LostOf(second);
  if (more.empty()) return first.ok() ? second : first;
  if (payloads.empty()) return second;
  payloads.insert(payloads.end(), more.begin(), more.end());
  return WithLost(first, payloads);
}

PayloadBuilder& PayloadBuilder::operator=(PayloadBuilder&& other) noexcept {
  if (this == &other) return *this;
  if (budget_ != nullptr) budget_->Unreserve(reserved_);
  budget_ = std::exchange(other.budget_, nullptr);
  written_ = other.written_;
  reserved_ = std::exchange(other.reserved_, 0);
  header_bytes_ = other.header_bytes_;
  parts_ = other.parts_;
  blocks_ = std::move(other.blocks_);
  other.blocks_.clear();
  return *this;
}

uint64_t PayloadBuilder::Footprint(uint64_t bytes) {
  const uint64_t whole = bytes / Block::kBytesMax;
  const uint64_t rest = bytes % Block::kBytesMax;
  return whole * Block::Footprint(Block::kBytesMax) + (rest > 0 ? Block::Footprint(rest) : 0);
}

void PayloadBuilder::Begin(PayloadBudget* budget, uint64_t bytes, uint64_t cold_bytes) {
  FOREBAY_CHECK(bytes > 0 && budget_ == nullptr);
  budget_ = budget;
  written_ = 0;
  reserved_ = Footprint(bytes, cold_bytes);
  header_bytes_ = 0;
  parts_ = {PartState{.bytes = bytes}, PartState{.bytes = cold_bytes}};
  blocks_.clear();
}

char* PayloadBuilder::BeginWhole(PayloadBudget* budget, std::string_view header,
                                 uint64_t payload_bytes) {
  FOREBAY_CHECK(IsWhole(header, payload_bytes) && budget_ == nullptr);
  budget_ = budget;
  written_ = header.size() + payload_bytes;
  reserved_ = 0;
  header_bytes_ = static_cast<uint32_t>(header.size());
  parts_ = {PartState{.bytes = written_}, PartState{}};
  if (notes_crc()) NoteCrc(Crc32c(header), header.size());
  Block* const block = Block::New(written_, budget);
  blocks_.clear();
  blocks_.push_back(BlockRef::Adopt(block));
  if (!header.empty()) std::memcpy(block->data(), header.data(), header.size());
  return block->data() + header.size();
}

// Where the next bytes go, and how many fit there.
char* PayloadBuilder::Room(size_t* size) {
  const uint64_t in_part = written_ - (written_ < parts_[0].bytes ? 0 : parts_[0].bytes);
  const size_t in_block = in_part % Block::kBytesMax;
  if (in_block == 0) {
    const auto block_bytes =
        static_cast<size_t>(std::min<uint64_t>(LeftOfPart(), Block::kBytesMax));
    blocks_.push_back(BlockRef::Adopt(Block::New(block_bytes, budget_)));
    reserved_ -= Block::Footprint(block_bytes);
  }
  Block* const block = blocks_.back().get();
  *size = block->size() - in_block;
  return block->data() + in_block;
}

void PayloadBuilder::AppendHeader(std::string_view header) {
  FOREBAY_CHECK(written_ == 0 && header.size() <= Block::kBytesMax);
  header_bytes_ = static_cast<uint32_t>(header.size());
  if (header.empty()) return;
  size_t room = 0;
  char* const to = Room(&room);
  FOREBAY_CHECK(header.size() <= room);
  std::memcpy(to, header.data(), header.size());
  written_ = header.size();
  if (notes_crc()) NoteCrc(Crc32c(header), header.size());
}

uint32_t PayloadBuilder::Append(std::string_view bytes, uint32_t before) {
  FOREBAY_CHECK(bytes.size() <= left());
  if (const uint64_t size = LeftOfPart(); size < bytes.size()) {
    return Append(bytes.substr(size), Append(bytes.substr(0, size), before));
  }
  uint32_t crc = before;
  while (!bytes.empty()) {
    size_t room = 0;
    char* const to = Room(&room);
    const size_t piece = std::min(room, bytes.size());
    crc = CopyCrc32c(to, bytes.data(), piece, crc);
    written_ += piece;
    bytes.remove_prefix(piece);
  }
  return crc;
}

void PayloadBuilder::NoteCrc(uint32_t crc, uint64_t size) {
  PartState& part = parts_[parts_[0].summed < parts_[0].bytes ? 0 : 1];
  part.crc = JoinCrc32c(part.crc, crc, size);
  part.summed += size;
  FOREBAY_CHECK(part.summed <= part.bytes);
}

uint32_t PayloadBuilder::Crc(Part part) const {
  const PartState& state = parts_[static_cast<size_t>(part)];
  if (state.summed == state.bytes) return state.crc;
  const auto blocks = absl::MakeConstSpan(blocks_);
  uint32_t crc = 0;
  for (const BlockRef& block :
       part == Part::kHot ? blocks.first(HotBlocks()) : blocks.subspan(HotBlocks())) {
    crc = Crc32c({block->data(), block->size()}, crc);
  }
  return crc;
}

PayloadBuilder::Blocks PayloadBuilder::Take() {
  FOREBAY_CHECK(budget_ != nullptr && left() == 0 && reserved_ == 0);
  budget_ = nullptr;
  const auto blocks = absl::MakeSpan(blocks_);
  return {.hot = blocks.first(HotBlocks()), .cold = blocks.subspan(HotBlocks())};
}

uint64_t PayloadView::footprint() const {
  return (holds(Part::kHot) ? PayloadBuilder::Footprint(bytes_[0]) : 0) +
         (holds(Part::kCold) ? PayloadBuilder::Footprint(bytes_[1]) : 0);
}

absl::Status PayloadView::Slices(uint64_t offset, uint64_t size,
                                 std::vector<BlockSlice>* out) const {
  if (offset > bytes() || size > bytes() - offset) {
    return absl::OutOfRangeError(
        absl::StrCat("bytes ", offset, " to ", offset + size, " of a payload of ", bytes()));
  }
  const uint64_t hot = offset < bytes_[0] ? std::min(size, bytes_[0] - offset) : 0;
  const uint64_t cold = size - hot;
  if ((hot > 0 && !holds(Part::kHot)) || (cold > 0 && !holds(Part::kCold))) {
    return absl::FailedPreconditionError(
        absl::StrCat("bytes ", offset, " to ", offset + size, " of a payload of ", bytes(),
                     " lie in its cold part, from ", bytes_[0], " on, which was not loaded"));
  }
  AddSlices(blocks_[0], offset, hot, out);
  if (cold > 0) AddSlices(blocks_[1], offset + hot - bytes_[0], cold, out);
  return absl::OkStatus();
}

void PayloadStore::Load(const std::vector<PayloadId>& ids, Parts parts, LoadDone done) {
  std::vector<PayloadParts> wanted;
  wanted.reserve(ids.size());
  for (const PayloadId id : ids) wanted.push_back({id, parts});
  LoadParts(std::move(wanted), std::move(done));
}

void PayloadStore::LoadParts(std::vector<PayloadParts> wanted, LoadDone done) {
  std::vector<PayloadView> views;
  views.reserve(wanted.size());
  std::vector<PayloadId> ids;
  for (size_t begin = 0; begin < wanted.size(); begin += ids.size()) {
    const Parts parts = wanted[begin].parts;
    ids.clear();
    for (size_t i = begin; i < wanted.size() && wanted[i].parts == parts; ++i) {
      ids.push_back(wanted[i].id);
    }
    if (auto status = Open(ids, parts, &views); !status.ok()) return done(std::move(status));
  }
  done(std::move(views));
}

void PayloadStore::Want(StepId, std::vector<PayloadId>) {}
void PayloadStore::Cool(absl::Span<const PayloadId>) {}

absl::Status PayloadStore::Read(PayloadId id, uint64_t offset, uint64_t size,
                                std::vector<BlockSlice>* out) {
  std::vector<PayloadView> views;
  FOREBAY_RETURN_IF_ERROR(Open({id}, &views));
  return views[0].Slices(offset, size, out);
}

}  // namespace forebay::storage
