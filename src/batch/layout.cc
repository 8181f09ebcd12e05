#include "batch/layout.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::batch {
namespace {

constexpr uint64_t kMostTokens = std::numeric_limits<int32_t>::max();
// Far above any rollout, and small enough that no sum below overflows 64 bits.
constexpr uint64_t kMostPlaceBytes = uint64_t{1} << 40;
constexpr uint64_t kMostColumnBytes = uint64_t{1} << 48;

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckPlace(const ColumnSpec& column, const ColumnPlace& place, uint32_t tokens,
                        size_t s, size_t c) {
  if (!place.present) return absl::OkStatus();
  if (place.bytes > kMostPlaceBytes || place.offset > kMostPlaceBytes) {
    return Refuse("sequences[", s, "].columns[", c, "]: offset ", place.offset, ", bytes ",
                  place.bytes, ", each at most ", kMostPlaceBytes);
  }
  if (column.bytes_per_token == 0) return absl::OkStatus();
  const uint64_t full = uint64_t{tokens} * column.bytes_per_token;
  if (place.bytes > full || place.bytes % column.bytes_per_token != 0) {
    return Refuse("sequences[", s, "].columns[", c, "].bytes: ", place.bytes,
                  ", must be whole rows of ", column.bytes_per_token, ", at most ", tokens);
  }
  if (column.loss_mask && place.bytes != full) {
    return Refuse("sequences[", s, "].columns[", c, "].bytes: ", place.bytes,
                  ", a loss mask must have all ", full);
  }
  return absl::OkStatus();
}

absl::Status CheckMasked(const SequencePlace& sequence, size_t s) {
  uint32_t free_from = 0;
  for (size_t r = 0; r < sequence.masked.size(); ++r) {
    const TokenRange& range = sequence.masked[r];
    if (range.begin < free_from || range.begin >= range.end || range.end > sequence.tokens) {
      return Refuse("sequences[", s, "].masked[", r, "]: ", range.begin, " to ", range.end,
                    ", must be a range within ", free_from, " to ", sequence.tokens);
    }
    free_from = range.end;
  }
  return absl::OkStatus();
}

absl::Status Check(absl::Span<const SequencePlace> sequences, const LayoutSpec& spec) {
  if (spec.pad_multiple == 0) return Refuse("pad_multiple: 0, at least 1");
  for (size_t c = 0; c < spec.columns.size(); ++c) {
    if (spec.columns[c].loss_mask && spec.columns[c].bytes_per_token == 0) {
      return Refuse("columns[", c, "].bytes_per_token: 0, at least 1 for a loss mask");
    }
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequencePlace& sequence = sequences[s];
    if (sequence.tokens == 0 || sequence.tokens > kMostTokens) {
      return Refuse("sequences[", s, "].tokens: ", sequence.tokens, ", from 1 to ", kMostTokens);
    }
    if (sequence.columns.size() != spec.columns.size()) {
      return Refuse("sequences[", s, "].columns: ", sequence.columns.size(), ", must be ",
                    spec.columns.size());
    }
    for (size_t c = 0; c < spec.columns.size(); ++c) {
      FOREBAY_RETURN_IF_ERROR(
          CheckPlace(spec.columns[c], sequence.columns[c], sequence.tokens, s, c));
    }
    FOREBAY_RETURN_IF_ERROR(CheckMasked(sequence, s));
  }
  return absl::OkStatus();
}

// Appends runs of bytes to a column and joins those that continue each other.
class ColumnWriter {
 public:
  ColumnWriter(absl::Span<const SequencePlace> sequences, ColumnLayout& column)
      : sequences_(sequences), column_(column) {}

  void Payload(uint32_t sequence, uint64_t offset, uint64_t bytes) {
    Append({sequence, SegmentKind::kPayload, offset, bytes});
  }
  void Fill(SegmentKind kind, uint64_t bytes) { Append({Segment::kNoSequence, kind, 0, bytes}); }

 private:
  bool Continues(const Segment& last, const Segment& next) const {
    if (last.kind != next.kind) return false;
    if (last.kind != SegmentKind::kPayload) return true;
    return sequences_[last.sequence].payload == sequences_[next.sequence].payload &&
           last.offset + last.bytes == next.offset;
  }

  void Append(const Segment& next) {
    if (next.bytes == 0) return;
    column_.bytes += next.bytes;
    if (!column_.segments.empty() && Continues(column_.segments.back(), next)) {
      column_.segments.back().bytes += next.bytes;
    } else {
      column_.segments.push_back(next);
    }
  }

  absl::Span<const SequencePlace> sequences_;
  ColumnLayout& column_;
};

// Rows [begin, end) of a sequence: from the payload as far as they are there, else missing.
void WriteRows(const SequencePlace& place, uint32_t sequence, size_t c, uint64_t width,
               uint64_t begin, uint64_t end, ColumnWriter& writer) {
  const ColumnPlace& column = place.columns[c];
  const uint64_t there = column.present ? column.bytes / width : 0;
  const uint64_t split = std::clamp(there, begin, end);
  writer.Payload(sequence, column.offset + begin * width, (split - begin) * width);
  writer.Fill(SegmentKind::kMissing, (end - split) * width);
}

void WriteMask(const SequencePlace& place, uint32_t sequence, size_t c, uint64_t width,
               MaskAlignment alignment, ColumnWriter& writer) {
  // Predicting rows are those of the next token: the first is dropped, a zero comes last.
  uint64_t row = alignment == MaskAlignment::kPredicting ? 1 : 0;
  const uint64_t shifted_in = row;
  for (const TokenRange& range : place.masked) {
    const uint64_t begin = std::max<uint64_t>(row, range.begin);
    const uint64_t end = std::max<uint64_t>(row, range.end);
    WriteRows(place, sequence, c, width, row, begin, writer);
    writer.Fill(SegmentKind::kZero, (end - begin) * width);
    row = end;
  }
  WriteRows(place, sequence, c, width, row, place.tokens, writer);
  writer.Fill(SegmentKind::kZero, shifted_in * width);
}

ColumnLayout LayColumn(absl::Span<const SequencePlace> sequences, const LayoutSpec& spec, size_t c,
                       uint64_t padding_tokens) {
  const ColumnSpec& column = spec.columns[c];
  const uint64_t width = column.bytes_per_token;
  ColumnLayout layout;
  ColumnWriter writer(sequences, layout);
  for (uint32_t s = 0; s < sequences.size(); ++s) {
    const SequencePlace& sequence = sequences[s];
    const ColumnPlace& place = sequence.columns[c];
    if (width == 0) {
      const uint64_t bytes = place.present ? place.bytes : 0;
      writer.Payload(s, place.offset, bytes);
      layout.sequence_bytes.push_back(bytes);
    } else if (column.loss_mask) {
      WriteMask(sequence, s, c, width, spec.mask_alignment, writer);
    } else {
      WriteRows(sequence, s, c, width, 0, sequence.tokens, writer);
    }
  }
  writer.Fill(SegmentKind::kZero, padding_tokens * width);
  return layout;
}

}  // namespace

absl::StatusOr<Layout> MakeLayout(absl::Span<const SequencePlace> sequences,
                                  const LayoutSpec& spec) {
  FOREBAY_RETURN_IF_ERROR(Check(sequences, spec));
  Layout layout;
  layout.cu_seqlens.reserve(sequences.size() + 1);
  layout.cu_seqlens.push_back(0);
  for (const SequencePlace& sequence : sequences) {
    layout.tokens += sequence.tokens;
    if (layout.tokens > kMostTokens) {
      return Refuse("sequences: over ", kMostTokens, " tokens, the most that cu_seqlens can count");
    }
    layout.cu_seqlens.push_back(static_cast<int32_t>(layout.tokens));
    layout.max_seqlen = std::max(layout.max_seqlen, sequence.tokens);
  }
  const uint64_t pad = spec.pad_multiple;
  layout.padded_tokens = (layout.tokens + pad - 1) / pad * pad;
  if (layout.padded_tokens > kMostTokens) {
    return Refuse("pad_multiple: ", pad, ", pads ", layout.tokens, " tokens to ",
                  layout.padded_tokens, ", at most ", kMostTokens);
  }
  layout.columns.reserve(spec.columns.size());
  for (size_t c = 0; c < spec.columns.size(); ++c) {
    layout.columns.push_back(LayColumn(sequences, spec, c, layout.padded_tokens - layout.tokens));
    if (layout.columns.back().bytes > kMostColumnBytes) {
      return Refuse("columns[", c, "]: ", layout.columns.back().bytes, " bytes, at most ",
                    kMostColumnBytes);
    }
    layout.bytes += layout.columns.back().bytes;
  }
  return layout;
}

}  // namespace forebay::batch
