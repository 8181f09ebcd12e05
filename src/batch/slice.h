// Which part of a micro-batch a peer of a rank takes: a share of its tokens, where peers divide the
// sequences between them (context parallel), and a part of each row (the layers of a pipeline's
// stage, its experts).
//
// Pure: it sees lengths and shapes. Safe from any thread. InvalidArgument names the field, the
// value and the limit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace forebay::batch {

// How rows are divided among `size` peers. A chunk is a run of rows; all have one length.
enum class ContextOrder : uint8_t {
  kContiguous,       // `size` chunks of the padded rows: peer r takes chunk r
  kZigzag,           // 2 x size chunks of them: peer r takes r, then 2 x size - 1 - r
  kZigzagSequences,  // the same in each sequence by itself, padded to a multiple of 2 x size
};

struct ContextSlice {
  ContextOrder order = ContextOrder::kContiguous;
  uint32_t size = 1;
  uint32_t rank = 0;
  // Of kZigzagSequences alone: the slice's rows are padded to a multiple of this.
  uint32_t pad_multiple = 1;
};

// Rows [begin, end) of a sequence that lie next to each other in a slice; those from the sequence's
// length on are padding. The sequence behind the last one is the padding of the micro-batch.
struct TokenSpan {
  uint32_t sequence = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const TokenSpan&) const = default;
};

struct TokenSlice {
  // Of the slice's rows, S + 1: a sequence's are together, whatever the order; none may be there.
  std::vector<int32_t> cu_seqlens;
  uint32_t max_seqlen = 0;
  uint64_t padded_tokens = 0;  // rows of the slice
  std::vector<TokenSpan> spans;
};

// `sequences`: tokens of each, above 0; `padded_tokens`: rows of the micro-batch with its padding.
absl::StatusOr<TokenSlice> SliceTokens(absl::Span<const uint32_t> sequences, uint64_t padded_tokens,
                                       const ContextSlice& context);

// Indexes [begin, end) of a dimension.
struct IndexRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct ByteRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const ByteRun&) const = default;
};

// A part of each row of a column.
struct RowSlice {
  std::vector<uint32_t> inner;  // the shape of what is taken
  std::vector<ByteRun> runs;    // ascending, apart; together `bytes` long
  uint64_t bytes = 0;
  uint64_t row_bytes = 0;  // of a whole row
  bool whole() const { return bytes == row_bytes; }
};

// More peers than this share no micro-batch.
inline constexpr uint32_t kContextSizeMax = 65'536;
// A row that is cut into more pieces than this is refused.
inline constexpr uint64_t kRowRunsMax = 4096;

// `inner`: shape of a row of values of `value_bytes`, together at most 2^32 bytes. `dimensions`: of
// each, outermost first, the ranges that are taken, ascending and apart; none, as for those that it
// does not name: all.
absl::StatusOr<RowSlice> SliceRow(absl::Span<const uint32_t> inner, uint32_t value_bytes,
                                  absl::Span<const std::vector<IndexRange>> dimensions);

}  // namespace forebay::batch
