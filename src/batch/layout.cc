#include "batch/layout.h"

#include <algorithm>
#include <limits>
#include <utility>

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

absl::Status CheckResponse(const ColumnSpec& column, const ColumnPlace& place,
                           const SequencePlace& sequence, size_t s, size_t c) {
  const uint64_t full =
      uint64_t{sequence.tokens - sequence.prompt_tokens} * column.bytes_per_response_token;
  if (place.bytes == full) return absl::OkStatus();
  return Refuse("sequences[", s, "].columns[", c, "].bytes: ", place.bytes,
                ", the response tokens have ", full);
}

absl::Status CheckPlace(const ColumnSpec& column, const ColumnPlace& place,
                        const SequencePlace& sequence, size_t s, size_t c) {
  if (!place.present) return absl::OkStatus();
  if (place.bytes > kMostPlaceBytes || place.offset > kMostPlaceBytes) {
    return Refuse("sequences[", s, "].columns[", c, "]: offset ", place.offset, ", bytes ",
                  place.bytes, ", each at most ", kMostPlaceBytes);
  }
  if (column.bytes_per_response_token > 0) return CheckResponse(column, place, sequence, s, c);
  if (column.bytes_per_token == 0) return absl::OkStatus();
  const uint64_t full = uint64_t{sequence.tokens} * column.bytes_per_token;
  if (place.bytes > full || place.bytes % column.bytes_per_token != 0) {
    return Refuse("sequences[", s, "].columns[", c, "].bytes: ", place.bytes,
                  ", must be whole rows of ", column.bytes_per_token, ", at most ",
                  sequence.tokens);
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
    const ColumnSpec& column = spec.columns[c];
    const bool by_token = column.loss_mask || column.alignment == Alignment::kPredicting;
    if (by_token && column.bytes_per_token == 0) {
      return Refuse("columns[", c,
                    "].bytes_per_token: 0, at least 1 for a loss mask, and to shift");
    }
  }
  for (size_t s = 0; s < sequences.size(); ++s) {
    const SequencePlace& sequence = sequences[s];
    if (sequence.tokens == 0 || sequence.tokens > kMostTokens) {
      return Refuse("sequences[", s, "].tokens: ", sequence.tokens, ", from 1 to ", kMostTokens);
    }
    if (sequence.prompt_tokens > sequence.tokens) {
      return Refuse("sequences[", s, "].prompt_tokens: ", sequence.prompt_tokens, ", at most ",
                    sequence.tokens);
    }
    if (sequence.columns.size() != spec.columns.size()) {
      return Refuse("sequences[", s, "].columns: ", sequence.columns.size(), ", must be ",
                    spec.columns.size());
    }
    for (size_t c = 0; c < spec.columns.size(); ++c) {
      FOREBAY_RETURN_IF_ERROR(CheckPlace(spec.columns[c], sequence.columns[c], sequence, s, c));
    }
    FOREBAY_RETURN_IF_ERROR(CheckMasked(sequence, s));
  }
  return absl::OkStatus();
}

// Appends runs of bytes to a column and joins those that continue each other.
class ColumnWriter {
 public:
  explicit ColumnWriter(ColumnLayout& column) : column_(column) {}

  void Payload(const SequencePlace& sequence, const ColumnPlace& place, uint64_t at,
               uint64_t bytes) {
    const bool own = place.payload != ColumnPlace::kOfSequence;
    Append(
        {own ? place.payload : sequence.payload, SegmentKind::kPayload, place.offset + at, bytes});
  }
  void Fill(SegmentKind kind, uint64_t bytes) { Append({Segment::kNoPayload, kind, 0, bytes}); }

 private:
  static bool Continues(const Segment& last, const Segment& next) {
    if (last.kind != next.kind) return false;
    if (last.kind != SegmentKind::kPayload) return true;
    return last.payload == next.payload && last.offset + last.bytes == next.offset;
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

  ColumnLayout& column_;
};

// Rows [begin, end) of a sequence: from the payload as far as they are there, else missing.
void WriteRows(const SequencePlace& sequence, size_t c, uint64_t width, uint64_t begin,
               uint64_t end, ColumnWriter& writer) {
  const ColumnPlace& place = sequence.columns[c];
  const uint64_t there = place.present ? place.bytes / width : 0;
  const uint64_t split = std::clamp(there, begin, end);
  writer.Payload(sequence, place, begin * width, (split - begin) * width);
  writer.Fill(SegmentKind::kMissing, (end - split) * width);
}

// Rows [begin, end) of a per-token column as it is aligned; zeros from the last one on.
void WriteSpan(const SequencePlace& sequence, const ColumnSpec& column, size_t c, uint64_t begin,
               uint64_t end, ColumnWriter& writer) {
  const uint64_t width = column.bytes_per_token;
  // Predicting rows are those of the next token: the first is dropped, a zero comes last.
  const uint64_t shift = column.alignment == Alignment::kPredicting ? 1 : 0;
  const uint64_t last = std::min<uint64_t>(end + shift, sequence.tokens);
  const uint64_t first = std::min(begin + shift, last);
  uint64_t row = first;
  if (column.loss_mask) {
    for (const TokenRange& range : sequence.masked) {
      const uint64_t from = std::clamp<uint64_t>(range.begin, row, last);
      const uint64_t to = std::clamp<uint64_t>(range.end, row, last);
      WriteRows(sequence, c, width, row, from, writer);
      writer.Fill(SegmentKind::kZero, (to - from) * width);
      row = to;
    }
  }
  WriteRows(sequence, c, width, row, last, writer);
  writer.Fill(SegmentKind::kZero, ((end - begin) - (last - first)) * width);
}

// Of rows [begin, end) of a sequence those of the response; returns their bytes.
uint64_t WriteResponse(const SequencePlace& sequence, uint64_t width, size_t c, uint64_t begin,
                       uint64_t end, ColumnWriter& writer) {
  const ColumnPlace& place = sequence.columns[c];
  const uint64_t prompt = sequence.prompt_tokens;
  const uint64_t last = std::clamp<uint64_t>(end, prompt, sequence.tokens);
  const uint64_t first = std::clamp(begin, prompt, last);
  const uint64_t bytes = place.present ? (last - first) * width : 0;
  writer.Payload(sequence, place, (first - prompt) * width, bytes);
  return bytes;
}

ColumnLayout LayColumn(absl::Span<const SequencePlace> sequences, absl::Span<const TokenSpan> spans,
                       const ColumnSpec& column, size_t c) {
  ColumnLayout layout;
  ColumnWriter writer(layout);
  const uint64_t response_width = column.bytes_per_response_token;
  if (column.bytes_per_token == 0 && response_width == 0) {
    for (const SequencePlace& sequence : sequences) {
      const ColumnPlace& place = sequence.columns[c];
      const uint64_t bytes = place.present ? place.bytes : 0;
      writer.Payload(sequence, place, 0, bytes);
      layout.sequence_bytes.push_back(bytes);
    }
    return layout;
  }
  if (response_width > 0) layout.sequence_bytes.resize(sequences.size());
  for (const TokenSpan& span : spans) {
    if (span.sequence == sequences.size()) {
      writer.Fill(SegmentKind::kZero, uint64_t{span.end - span.begin} * column.bytes_per_token);
    } else if (response_width > 0) {
      layout.sequence_bytes[span.sequence] +=
          WriteResponse(sequences[span.sequence], response_width, c, span.begin, span.end, writer);
    } else {
      WriteSpan(sequences[span.sequence], column, c, span.begin, span.end, writer);
    }
  }
  return layout;
}

// All rows, or the share of them.
absl::StatusOr<std::vector<TokenSpan>> TakeRows(absl::Span<const SequencePlace> sequences,
                                                const LayoutSpec& spec, Layout* layout) {
  std::vector<uint32_t> lengths;
  for (const SequencePlace& sequence : sequences) lengths.push_back(sequence.tokens);
  if (spec.context.has_value()) {
    auto slice = SliceTokens(lengths, layout->padded_tokens, *spec.context);
    if (!slice.ok()) return slice.status();
    layout->cu_seqlens = std::move(slice->cu_seqlens);
    layout->max_seqlen = slice->max_seqlen;
    layout->tokens = static_cast<uint64_t>(layout->cu_seqlens.back());
    layout->padded_tokens = slice->padded_tokens;
    layout->spans = slice->spans;
    return std::move(slice->spans);
  }
  std::vector<TokenSpan> spans;
  for (uint32_t s = 0; s < lengths.size(); ++s) spans.push_back({s, 0, lengths[s]});
  const auto padding = static_cast<uint32_t>(layout->padded_tokens - layout->tokens);
  if (padding > 0) spans.push_back({static_cast<uint32_t>(lengths.size()), 0, padding});
  return spans;
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
  layout.whole_cu_seqlens = layout.cu_seqlens;
  layout.whole_padded_tokens = layout.padded_tokens;
  const auto spans = TakeRows(sequences, spec, &layout);
  if (!spans.ok()) return spans.status();
  layout.columns.reserve(spec.columns.size());
  for (size_t c = 0; c < spec.columns.size(); ++c) {
    layout.columns.push_back(LayColumn(sequences, *spans, spec.columns[c], c));
    if (layout.columns.back().bytes > kMostColumnBytes) {
      return Refuse("columns[", c, "]: ", layout.columns.back().bytes, " bytes, at most ",
                    kMostColumnBytes);
    }
    layout.bytes += layout.columns.back().bytes;
  }
  return layout;
}

}  // namespace forebay::batch
