#include "client/assembly.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/totals.h"
#include "forebay/v1/trainer.pb.h"

namespace forebay::client {
namespace {

// Cache lines, and what vector loads like.
constexpr std::align_val_t kAlignment{64};

size_t Rounded(uint64_t bytes) {
  const auto alignment = static_cast<uint64_t>(kAlignment);
  return (bytes + alignment - 1) / alignment * alignment;
}

template <class To, class From>
void Copy(const From& from, std::vector<To>* to) {
  to->assign(from.begin(), from.end());
}

bool Rise(const google::protobuf::RepeatedField<int32_t>& cu_seqlens) {
  int32_t end = 0;
  for (const int32_t next : cu_seqlens) {
    if (next < std::exchange(end, next)) return false;
  }
  return true;
}

// That the spans are all of the rows, of sequences that there are.
absl::Status CheckSpans(const v1::MicroBatchLayout& layout) {
  if (!layout.has_context() && layout.spans().empty()) return absl::OkStatus();
  if (layout.whole_cu_seqlens_size() != layout.cu_seqlens_size() ||
      !Rise(layout.whole_cu_seqlens())) {
    return absl::InternalError("a layout's whole_cu_seqlens do not rise from 0 with cu_seqlens");
  }
  uint64_t rows = 0;
  for (const auto& span : layout.spans()) {
    if (span.begin() >= span.end() || span.end() > std::numeric_limits<int32_t>::max() ||
        span.sequence() >= static_cast<uint32_t>(layout.cu_seqlens_size())) {
      return absl::InternalError("a layout's span is of no sequence's rows");
    }
    rows += span.end() - span.begin();
  }
  if (rows == layout.padded_tokens()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("a layout's spans have ", rows, " rows of ", layout.padded_tokens()));
}

// That sizes can be added up and lengths be walked over, whatever came over the wire.
absl::Status Check(const v1::MicroBatchLayout& layout) {
  if (!Rise(layout.cu_seqlens())) {
    return absl::InternalError("a layout's cu_seqlens do not rise from 0");
  }
  if (absl::Status spans = CheckSpans(layout); !spans.ok()) return spans;
  const int sampled = layout.sampled_offsets_size();
  if (layout.sampled_versions_size() != sampled || layout.sampled_engines_size() != sampled) {
    return absl::InternalError("what was sampled is not parallel in a layout");
  }
  if (layout.padded_tokens() > std::numeric_limits<int32_t>::max()) {
    return absl::InternalError(
        absl::StrCat("a layout's padded_tokens are ", layout.padded_tokens()));
  }
  constexpr uint64_t kBytesMax = uint64_t{1} << 48;  // beyond what can be addressed
  uint64_t bytes = 0;
  for (const auto& column : layout.columns()) {
    if (column.bytes() > kBytesMax || (bytes += column.bytes()) > kBytesMax) {
      return absl::InternalError(
          absl::StrCat("a layout's column '", column.name(), "' has ", column.bytes(), " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Assembly::Begin(const std::string& encoded) {
  v1::MicroBatchLayout layout;
  if (!layout.ParseFromString(encoded)) return absl::InternalError("a layout cannot be read");
  if (auto status = Check(layout); !status.ok()) return status;
  begun_ = true;
  batch_.revision = layout.revision();
  Copy(layout.cu_seqlens(), &batch_.cu_seqlens);
  batch_.padded_tokens = layout.padded_tokens();
  batch_.max_seqlen = layout.max_seqlen();
  for (const auto& span : layout.spans()) {
    batch_.spans.push_back({span.sequence(), span.begin(), span.end()});
  }
  Copy(layout.whole_cu_seqlens(), &batch_.whole_cu_seqlens);
  batch_.whole_padded_tokens = layout.whole_padded_tokens();
  Copy(layout.rewards(), &batch_.rewards);
  Copy(layout.advantages(), &batch_.advantages);
  Copy(layout.versions(), &batch_.versions);
  Copy(layout.lags(), &batch_.lags);
  Copy(layout.rollout_ids(), &batch_.rollout_ids);
  Copy(layout.group_ids(), &batch_.group_ids);
  Copy(layout.task_ids(), &batch_.task_ids);
  Copy(layout.sequence_indexes(), &batch_.sequence_indexes);
  Copy(layout.prompt_tokens(), &batch_.prompt_tokens);
  Copy(layout.loss_tokens(), &batch_.loss_tokens);
  Copy(layout.rollout_loss_tokens(), &batch_.rollout_loss_tokens);
  batch_.mini_batch_totals = FromWire(layout.mini_batch());
  for (const uint32_t source : layout.sources()) {
    const bool named = source < static_cast<uint32_t>(layout.source_names_size());
    batch_.sources.push_back(named ? layout.source_names(static_cast<int>(source)) : "");
  }
  Copy(layout.sampled_counts(), &batch_.sampled_counts);
  for (int i = 0; i < layout.sampled_offsets_size(); ++i) {
    batch_.sampled.push_back(
        {layout.sampled_offsets(i), layout.sampled_versions(i), layout.sampled_engines(i)});
  }
  batch_.engine_names = {layout.engine_names().begin(), layout.engine_names().end()};
  return FindPlaces(layout);
}

absl::Status Assembly::FindPlaces(const v1::MicroBatchLayout& layout) {
  size_t own = 0;
  for (const auto& column : layout.columns()) {
    bytes_ += column.bytes();
    own += Rounded(column.bytes());
  }
  char* place = nullptr;
  if (spec_->allocate == nullptr && own > 0) {
    place = static_cast<char*>(::operator new(own, kAlignment, std::nothrow));
    if (place == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", own, " bytes of columns"));
    }
    batch_.storage = {place, [](void* p) { ::operator delete(p, kAlignment); }};
  }
  for (const auto& c : layout.columns()) {
    if (spec_->allocate != nullptr) {
      place = static_cast<char*>(spec_->allocate(c.name(), c.bytes()));
      if (place == nullptr && c.bytes() > 0) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the caller gave no place for column '", c.name(), "'"));
      }
    }
    places_.push_back(place);
    batch_.columns.push_back(
        {.name = c.name(),
         .dtype = static_cast<DType>(c.dtype()),
         .domain = static_cast<Domain>(c.domain()),
         .inner = {c.inner().begin(), c.inner().end()},
         .bytes = {place, c.bytes()},
         .padding_bytes = c.padding_bytes(),
         .sequence_bytes = {c.sequence_bytes().begin(), c.sequence_bytes().end()}});
    if (spec_->allocate == nullptr && place != nullptr) place += Rounded(c.bytes());
  }
  return absl::OkStatus();
}

absl::Status Assembly::Add(const FetchFrameView& frame) {
  if (frame.has_layout && !begun_) {
    if (auto status = Begin(frame.layout); !status.ok()) return status;
  }
  if (!begun_) return absl::InternalError("an answer began without a layout");
  for (std::string_view data : frame.data) {
    while (!data.empty()) {
      while (column_ < places_.size() && offset_ == batch_.columns[column_].bytes.size()) {
        ++column_;
        offset_ = 0;
      }
      if (column_ == places_.size())
        return absl::InternalError("an answer is longer than its layout");
      const size_t size =
          std::min<size_t>(data.size(), batch_.columns[column_].bytes.size() - offset_);
      std::memcpy(places_[column_] + offset_, data.data(), size);
      offset_ += size;
      data.remove_prefix(size);
    }
  }
  if (!frame.last) return absl::OkStatus();
  while (column_ < places_.size() && offset_ == batch_.columns[column_].bytes.size()) {
    ++column_;
    offset_ = 0;
  }
  if (column_ < places_.size()) return absl::InternalError("an answer is shorter than its layout");
  complete_ = true;
  return absl::OkStatus();
}

const FetchedColumn* MicroBatch::Find(std::string_view name) const {
  for (const FetchedColumn& column : columns) {
    if (column.name == name) return &column;
  }
  return nullptr;
}

std::vector<int32_t> MicroBatch::PositionIds() const {
  std::vector<int32_t> positions;
  positions.reserve(padded_tokens);
  for (const TokenSpan& span : spans) {
    for (uint32_t i = span.begin; i < span.end; ++i) positions.push_back(static_cast<int32_t>(i));
  }
  if (!spans.empty()) return positions;
  for (size_t s = 0; s < sequences(); ++s) {
    for (int32_t i = 0; i < cu_seqlens[s + 1] - cu_seqlens[s]; ++i) positions.push_back(i);
  }
  for (int32_t i = 0; positions.size() < padded_tokens; ++i) positions.push_back(i);
  return positions;
}

std::vector<int64_t> MicroBatch::TokenIndexes() const {
  std::vector<int64_t> indexes;
  indexes.reserve(padded_tokens);
  for (const TokenSpan& span : spans) {
    const bool padding = span.sequence >= sequences();
    const int64_t first = padding ? 0 : whole_cu_seqlens[span.sequence];
    const int64_t end = padding ? 0 : whole_cu_seqlens[span.sequence + 1];
    for (int64_t i = first + span.begin; i < first + span.end; ++i) {
      indexes.push_back(i < end ? i : -1);
    }
  }
  if (!spans.empty()) return indexes;
  const int64_t tokens = cu_seqlens.empty() ? 0 : cu_seqlens.back();
  for (int64_t i = 0; i < static_cast<int64_t>(padded_tokens); ++i) {
    indexes.push_back(i < tokens ? i : -1);
  }
  return indexes;
}

}  // namespace forebay::client
