// Where each byte of a micro-batch comes from: the layout that a trainer's varlen attention takes.
//
// Pure: it sees lengths and places, and touches no payload. Columns are concatenated over the
// sequences in slot order; per-token columns are padded at the end to the padded length, which
// cu_seqlens leaves out. Of a share of the tokens (slice.h) the same is true of its rows. Whole
// rows are laid out, of which the caller may send parts. Safe from any thread. Spans in the input
// are borrowed for the call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "batch/slice.h"

namespace forebay::batch {

// Which token a row speaks of.
enum class Alignment : uint8_t {
  kToken,       // the token itself
  kPredicting,  // the next token, which this position predicts: row'[t] = row[t + 1], last 0
};

struct ColumnSpec {
  // Of a per-token column. 0: each sequence's length is its own (per response token, per sequence,
  // ragged, blob); such a column is not padded.
  uint32_t bytes_per_token = 0;
  bool loss_mask = false;                   // zero over masked ranges; needs bytes_per_token
  Alignment alignment = Alignment::kToken;  // kPredicting needs bytes_per_token
  // Of a column of response tokens whose rows are those of the tokens that are taken; 0: such a
  // column is laid out whole, as one of explicit lengths.
  uint32_t bytes_per_response_token = 0;
};

// A column's bytes within a payload.
struct ColumnPlace {
  static constexpr uint32_t kOfSequence = ~0u;

  bool present = false;  // else the column is missing: filled if per token, empty if not
  uint64_t offset = 0;
  // Of a per-token column whole rows, at most one per token; rows missing at the end are filled
  // (routes are recorded for all tokens but the last). A loss mask has every row.
  uint64_t bytes = 0;
  uint32_t payload = kOfSequence;  // another one than the sequence's, for what was written since
};

struct TokenRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct SequencePlace {
  uint32_t tokens = 0;
  uint32_t payload = 0;                      // which payload: equal for a rollout's sequences
  absl::Span<const ColumnPlace> columns;     // one for each of LayoutSpec's
  absl::Span<const TokenRange> masked = {};  // ascending, apart; tokens that train nothing
  uint32_t prompt_tokens = 0;                // at most `tokens`
};

struct LayoutSpec {
  absl::Span<const ColumnSpec> columns;
  uint32_t pad_multiple = 1;
  std::optional<ContextSlice> context;  // a share of the rows, padding included; empty: all
};

enum class SegmentKind : uint8_t {
  kPayload,  // bytes of a payload
  kZero,     // padding, masked rows of a loss mask, and rows that were shifted in
  kMissing,  // the column's missing value, repeated
};

// A run of bytes of one column. Neighbours that continue each other are one segment: fills of one
// kind, and adjacent bytes of one payload, also across sequences.
struct Segment {
  static constexpr uint32_t kNoPayload = ~0u;

  uint32_t payload = kNoPayload;  // none for fills
  SegmentKind kind = SegmentKind::kZero;
  uint64_t offset = 0;  // in the payload
  uint64_t bytes = 0;   // above 0
  bool operator==(const Segment&) const = default;
};

struct ColumnLayout {
  std::vector<Segment> segments;  // in order; together `bytes` long
  uint64_t bytes = 0;
  std::vector<uint64_t> sequence_bytes;  // by sequence; only for a column of explicit lengths
};

struct Layout {
  // Of the rows that are taken; of a share of the tokens a sequence's may be fewer than its tokens,
  // or none, and with zig-zag within sequences hold padding.
  std::vector<int32_t> cu_seqlens;  // S + 1
  uint32_t max_seqlen = 0;
  uint64_t tokens = 0;           // cu_seqlens.back()
  uint64_t padded_tokens = 0;    // rows of each per-token column
  std::vector<TokenSpan> spans;  // which rows; of a share alone
  // Of the whole micro-batch.
  std::vector<int32_t> whole_cu_seqlens;  // S + 1
  uint64_t whole_padded_tokens = 0;
  std::vector<ColumnLayout> columns;
  uint64_t bytes = 0;  // of all columns
};

// No sequence gives the layout of a filler: no token and no byte.
// InvalidArgument, naming the field, the value and the limit, if the input contradicts itself or a
// length does not fit its type.
absl::StatusOr<Layout> MakeLayout(absl::Span<const SequencePlace> sequences,
                                  const LayoutSpec& spec);

}  // namespace forebay::batch
