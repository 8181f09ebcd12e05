// A micro-batch as a trainer's varlen attention takes it: columns concatenated over the sequences,
// with their lengths.
//
// Plain values; no thread-safety of their own. A MicroBatch owns its bytes unless the caller's
// allocator gave the place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "forebay/rollout.h"

namespace forebay::client {

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

// S sequences. All vectors but cu_seqlens have S entries.
struct MicroBatch {
  uint32_t mini_batch = 0;
  uint32_t micro_batch = 0;  // within the rank's mini-batch
  uint32_t revision = 0;
  std::vector<int32_t> cu_seqlens;  // [S + 1]; the last is the number of tokens without padding
  uint64_t padded_tokens = 0;       // rows of token columns
  uint32_t max_seqlen = 0;
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
  Totals mini_batch_totals;

  size_t sequences() const { return cu_seqlens.empty() ? 0 : cu_seqlens.size() - 1; }
  // Null if it was not asked for.
  const FetchedColumn* Find(std::string_view name) const;
  // Position of each token within its sequence; padding counts from 0 as a sequence of its own.
  // [padded_tokens]
  std::vector<int32_t> PositionIds() const;

  std::shared_ptr<void> storage;  // of the columns' bytes, if they are owned
};

struct FetchSpec {
  std::vector<std::string> columns = {"tokens", "loss_mask"};
  // loss_mask at the position that predicts the token: mask'[t] = mask[t + 1], last 0.
  bool predicting_mask = false;
  // A rollout that lacks a column: its missing value, instead of a refusal.
  bool fill_missing = false;
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
