// The rollouts of one push frame on their way into the store: planned from their headers, filled as
// payload arrives.
//
// Not thread-safe: belongs to one stream. Order of calls for a frame with headers: Begin, Add for
// each, TakeUnreserved (and reserve that much), Fill; then Fill for each further frame until left()
// is 0. Header views are used up to the first Fill's end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "codec/header_decoder.h"
#include "codec/name_table.h"
#include "codec/rollout_header.h"
#include "server/grpc/push_stream.h"
#include "storage/payload_store.h"

namespace forebay::server {

struct RefusedRollout {
  uint32_t index = 0;
  uint64_t attempt_id = 0;
  shard::PushResult result = shard::PushResult::kInvalid;
  codec::FieldError error;
};

class IncomingRollouts {
 public:
  // The last columns of a rollout are cold if they are among these, which outlive it.
  explicit IncomingRollouts(absl::Span<const std::string> cold_columns = {})
      : cold_columns_(cold_columns) {}
  // `rollouts`: how many Add calls follow.
  void Begin(std::shared_ptr<const codec::NameTable> names, size_t rollouts);
  // A rollout that is wrong is kept, to be refused when its payload has passed. An error here means
  // that the size of its payload is not known, so that what follows cannot be read.
  codec::FieldError Add(std::string_view header, const codec::HeaderRules& rules,
                        const storage::PayloadBudget& budget);
  // Memory that Fill will take and nobody has reserved yet.
  uint64_t TakeUnreserved() { return std::exchange(unreserved_, 0); }
  // The next bytes; at most left().
  void Fill(absl::Span<const std::string_view> payload, storage::PayloadBudget* budget);

  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  // Rollouts below this have all their bytes.
  uint32_t ended() const { return next_; }
  // Payload bytes still to come.
  uint64_t left() const { return left_; }
  // Of the first rollout that takes memory; names who waits.
  uint64_t first_attempt() const { return first_attempt_; }
  // Of the rollout that is not whole; only while left() is above 0.
  const shard::LeaseRef& lease_at_hand() const { return metas_[next_].lease; }
  const std::shared_ptr<const codec::NameTable>& names() const { return names_; }

  // Rollouts from `begin` on that have ended, once: those refused are appended to `refused`, the
  // others to the batch, with their indexes. Returns the payloads of the batch's rollouts, which
  // live until Clear.
  absl::Span<storage::PayloadBuilder> Take(uint32_t begin, PushBatch* batch,
                                           std::vector<uint32_t>* indexes,
                                           std::vector<RefusedRollout>* refused);
  // One wrong rollout spoils its group.
  void RefuseAllIfAny();
  void Clear();

 private:
  struct Column {
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
    bool crc32c_stated = false;
  };
  struct Entry {
    std::string_view header;
    uint64_t payload_bytes = 0;
    uint64_t cold_bytes = 0;  // of them
    codec::Range columns;     // in columns_
    std::unique_ptr<codec::FieldError> error;
    bool started = false;
  };

  // What the names in a header mean: the same for all headers of a layout.
  struct Meaning {
    std::shared_ptr<const codec::NameTable> names;
    uint64_t layout = 0;
    uint64_t column_bits = 0;
    std::vector<uint8_t> rewards;  // NameTable::RewardNumbers
  };

  uint64_t ColdBytes(const codec::RolloutHeader& header) const;
  void Plan(const codec::RolloutHeader& header, std::string_view bytes, Entry* entry);
  void FindMeaning(const codec::RolloutHeader& header);
  void Start(uint32_t index, storage::PayloadBudget* budget);
  // All of the next rollout, whose payload is `bytes`.
  void FillWhole(std::string_view bytes, storage::PayloadBudget* budget);
  // Takes bytes of the rollout at hand; returns how many.
  uint64_t FillOne(std::string_view piece);
  void EndColumns();
  void Refuse(uint32_t index, codec::FieldError error);
  void RefuseCrc(uint32_t index, uint32_t column, uint32_t stated, uint32_t found);

  const absl::Span<const std::string> cold_columns_;
  std::shared_ptr<const codec::NameTable> names_;
  codec::HeaderDecoder* decoder_ = nullptr;  // the thread's
  Meaning meaning_;
  // Parallel: of each rollout how far it is, its payload, and what goes to the engine. What many
  // rollouts of a frame need one after the other lies together.
  std::vector<Entry> entries_;
  std::vector<storage::PayloadBuilder> payloads_;
  std::vector<shard::RolloutMeta> metas_;
  std::vector<PushedNames> named_;  // their rewards: in rewards_
  std::vector<Column> columns_;
  std::vector<codec::NumberedReward> rewards_;
  uint32_t wrong_ = 0;  // entries with an error
  uint64_t unreserved_ = 0;
  uint64_t first_attempt_ = 0;
  uint64_t left_ = 0;

  // The rollout at hand, and where in it we are.
  uint32_t next_ = 0;
  uint64_t rollout_left_ = 0;
  uint32_t column_ = 0;
  uint64_t column_left_ = 0;
  uint32_t crc_ = 0;
};

}  // namespace forebay::server
