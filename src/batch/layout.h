// Where each byte of a micro-batch comes from: the layout that a trainer's varlen attention takes.
//
// Pure: it sees lengths and places, and touches no payload. Columns are concatenated over the
// sequences in slot order; per-token columns are padded at the end to the padded length, which
// cu_seqlens leaves out. Safe from any thread. Spans in the input are borrowed for the call.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace forebay::batch {

// Which token a mask's row speaks of.
enum class MaskAlignment : uint8_t {
  kToken,       // the token itself
  kPredicting,  // the next token, which this position predicts: mask'[t] = mask[t + 1], last 0
};

struct ColumnSpec {
  // Of a per-token column. 0: each sequence's length is its own (per response token, per sequence,
  // ragged, blob); such a column is not padded.
  uint32_t bytes_per_token = 0;
  bool loss_mask = false;  // zero over masked ranges and aligned as asked; needs bytes_per_token
};

// A column's bytes within the payload of a sequence's rollout.
struct ColumnPlace {
  bool present = false;  // else the column is missing: filled if per token, empty if not
  uint64_t offset = 0;
  // Of a per-token column whole rows, at most one per token; rows missing at the end are filled
  // (routes are recorded for all tokens but the last). A loss mask has every row.
  uint64_t bytes = 0;
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
};

struct LayoutSpec {
  absl::Span<const ColumnSpec> columns;
  uint32_t pad_multiple = 1;
  MaskAlignment mask_alignment = MaskAlignment::kToken;
};

enum class SegmentKind : uint8_t {
  kPayload,  // bytes of a payload
  kZero,     // padding, and masked or shifted-in rows of a loss mask
  kMissing,  // the column's missing value, repeated
};

// A run of bytes of one column. Neighbours that continue each other are one segment: fills of one
// kind, and adjacent bytes of one payload, also across sequences.
struct Segment {
  static constexpr uint32_t kNoSequence = ~0u;

  uint32_t sequence = kNoSequence;  // the first one in it, which names the payload; none for fills
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
  std::vector<int32_t> cu_seqlens;  // S + 1
  uint32_t max_seqlen = 0;
  uint64_t tokens = 0;         // cu_seqlens.back()
  uint64_t padded_tokens = 0;  // rows of each per-token column
  std::vector<ColumnLayout> columns;
  uint64_t bytes = 0;  // of all columns
};

// No sequence gives the layout of a filler: no token and no byte.
// InvalidArgument, naming the field, the value and the limit, if the input contradicts itself or a
// length does not fit its type.
absl::StatusOr<Layout> MakeLayout(absl::Span<const SequencePlace> sequences,
                                  const LayoutSpec& spec);

}  // namespace forebay::batch
