// A micro-batch as a trainer's varlen attention takes it: columns concatenated over the sequences,
// with their lengths; or what one of several peers takes of it.
//
// Plain values; no thread-safety of their own. A MicroBatch owns its bytes unless the caller's
// allocator gave the place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "forebay/rollout.h"

namespace forebay::client {

// From this token on, until the next span of its sequence.
struct SampledSpan {
  uint32_t offset = 0;   // within the sequence
  uint32_t version = 0;  // number of the version that sampled it
  uint32_t engine = 0;   // index into MicroBatch::engine_names
};

// What losses divide by.
struct Totals {
  uint64_t loss_tokens = 0;  // after masks
  uint64_t tokens = 0;       // without padding
  uint64_t sequences = 0;
  uint64_t rollouts = 0;
  uint64_t groups = 0;
  uint32_t dp = 0;
};

// A column of a micro-batch: rows of all sequences one after another, padding (zeros) last.
struct FetchedColumn {
  std::string name;
  DType dtype = DType::kU8;
  Domain domain = Domain::kToken;
  std::vector<uint32_t> inner;  // shape of a row
  std::string_view bytes;       // padding included
  uint64_t padding_bytes = 0;
  // Where lengths do not follow from cu_seqlens: bytes of each sequence's part.
  std::vector<uint64_t> sequence_bytes;

  // The values as what they are; T must have the dtype's size.
  template <class T>
  absl::Span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// Indexes [begin, end) of a dimension.
struct IndexRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

// What is taken of one column; what is not taken is not sent.
struct ColumnSlice {
  std::string column;  // one of FetchSpec's
  // The stored column that it is made of; empty: the one of that name.
  std::string source;
  // By dimension of a row, outermost first: ranges that rise and lie apart, whose indexes come one
  // after another. None, as of dimensions that are not named: all.
  std::vector<std::vector<IndexRange>> dimensions;
  // Rounded to nearest even (f32 to bf16, f64 to f32), or wider (i16 to i32).
  std::optional<DType> dtype;
  // Rows stand one token earlier: row'[t] = row[t + 1] within a sequence, last 0.
  bool predicting = false;
};

// The numbers of forebay.v1.ContextOrder.
enum class ContextOrder : uint8_t {
  kContiguous = 1,       // the padded rows in `size` chunks: peer r takes chunk r
  kZigzag = 2,           // in 2 x size: chunk r, then chunk 2 x size - 1 - r
  kZigzagSequences = 3,  // the same in each sequence by itself, padded to a multiple of 2 x size
};

// The share of the tokens that one of `size` peers takes (context parallel).
struct ContextSlice {
  ContextOrder order = ContextOrder::kZigzagSequences;
  uint32_t size = 1;
  uint32_t rank = 0;
  uint32_t pad_multiple = 1;  // of the share's rows; with kZigzagSequences alone
};

// Rows [begin, end) of a sequence that follow each other in a share; those from the sequence's
// length on are padding, as are all of sequence S.
struct TokenSpan {
  uint32_t sequence = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};

// S sequences. All vectors have S entries, unless it says otherwise.
struct MicroBatch {
  uint32_t mini_batch = 0;
  uint32_t micro_batch = 0;  // within the rank's mini-batch
  uint32_t revision = 0;
  // [S + 1]; the last is the number of tokens without padding. Of a share: of its rows.
  std::vector<int32_t> cu_seqlens;
  uint64_t padded_tokens = 0;  // rows of token columns
  uint32_t max_seqlen = 0;     // in rows
  // Of a share alone: the rows that it has, and what cu_seqlens and padded_tokens are of the whole
  // micro-batch. What is said by sequence is said of whole sequences.
  std::vector<TokenSpan> spans;
  std::vector<int32_t> whole_cu_seqlens;
  uint64_t whole_padded_tokens = 0;
  std::vector<FetchedColumn> columns;  // in the order asked for
  std::vector<float> rewards;
  std::vector<float> advantages;
  std::vector<uint32_t> versions;
  std::vector<uint32_t> lags;
  std::vector<uint64_t> rollout_ids;
  std::vector<uint64_t> group_ids;
  std::vector<uint64_t> task_ids;
  std::vector<uint32_t> sequence_indexes;  // within the rollout
  std::vector<uint32_t> prompt_tokens;
  std::vector<uint32_t> loss_tokens;          // after masks
  std::vector<uint32_t> rollout_loss_tokens;  // of the whole rollout
  std::vector<std::string> sources;
  std::vector<uint32_t> sampled_counts;  // entries of each sequence in `sampled`, in order
  std::vector<SampledSpan> sampled;
  std::vector<std::string> engine_names;  // [as many as those name]; "" for one without a name
  Totals mini_batch_totals;

  size_t sequences() const { return cu_seqlens.empty() ? 0 : cu_seqlens.size() - 1; }
  // Null if it was not asked for.
  const FetchedColumn* Find(std::string_view name) const;
  // Position of each token within its sequence, also in a share; padding counts from 0 as a
  // sequence of its own. [padded_tokens]
  std::vector<int32_t> PositionIds() const;
  // Of each row the index that it has in the whole micro-batch; -1 of padding. [padded_tokens]
  std::vector<int64_t> TokenIndexes() const;

  std::shared_ptr<void> storage;  // of the columns' bytes, if they are owned
};

struct FetchSpec {
  std::vector<std::string> columns = {"tokens", "loss_mask"};
  // loss_mask at the position that predicts the token: mask'[t] = mask[t + 1], last 0.
  bool predicting_mask = false;
  // A rollout that lacks a column: its missing value, instead of a refusal.
  bool fill_missing = false;
  // Parts of columns, or other dtypes; each column at most once. Others come whole.
  std::vector<ColumnSlice> slices;
  // A share of the tokens; empty: all.
  std::optional<ContextSlice> context;
  // Scalars of rewards by name, as columns "reward/<key>".
  std::vector<std::string> reward_keys;
  // Micro-batches that are on their way or wait to be taken.
  uint32_t prefetch = 2;
  // Where a column's bytes go: called on the reader's thread, once a column; the place is the
  // caller's and stays until the micro-batch was handed out and used. Null: memory of the
  // micro-batch's own.
  std::function<void*(std::string_view column, size_t bytes)> allocate;
};

}  // namespace forebay::client
