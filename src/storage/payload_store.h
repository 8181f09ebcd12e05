// Where the bytes of rollouts live, from the push to the step that consumes them: the seam between
// RAM and the disk store.
//
// A stored payload is the rollout's encoded header, then its columns' bytes. Writing: reserve the
// footprint in the budget, fill a PayloadBuilder (copying with crc on the way), Finish. Reading:
// Open takes references under one lock, slices need none. Thread-safe, except that one builder
// belongs to one thread at a time. Ids carry a generation: an id that was freed reads NotFound for
// ever.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "storage/block.h"
#include "storage/payload_budget.h"

namespace forebay::storage {

// Bytes that stay alive as long as the reference.
struct BlockSlice {
  BlockRef block;
  const char* data = nullptr;
  size_t size = 0;
};

using BlockList = absl::InlinedVector<BlockRef, 1>;

// A payload that is being written. A value; what it holds goes back to the budget if it is not
// finished.
class PayloadBuilder {
 public:
  PayloadBuilder() = default;
  PayloadBuilder(PayloadBuilder&& other) noexcept { *this = std::move(other); }
  PayloadBuilder& operator=(PayloadBuilder&& other) noexcept;
  ~PayloadBuilder() {
    if (budget_ != nullptr) budget_->Unreserve(reserved_);
  }

  // What a payload of `bytes` bytes takes from the budget.
  static uint64_t Footprint(uint64_t bytes);

  // `bytes`: header and columns together, above 0; `reserved`: Footprint(bytes), reserved by the
  // caller, who passes it on.
  PayloadBuilder(PayloadBudget* budget, uint64_t bytes) { Begin(budget, bytes); }
  // The same, of a builder that holds nothing.
  void Begin(PayloadBudget* budget, uint64_t bytes);

  // The first bytes; at most a block's, in one piece.
  void AppendHeader(std::string_view header);
  // Whether a payload is small enough for BeginWhole.
  static bool IsWhole(std::string_view header, uint64_t payload_bytes) {
    const uint64_t bytes = header.size() + payload_bytes;
    return bytes > 0 && bytes <= Block::kBytesMax;
  }
  // Begin and AppendHeader, of a payload in one block; the caller writes its columns' bytes, all of
  // them, to what this returns.
  char* BeginWhole(PayloadBudget* budget, std::string_view header, uint64_t payload_bytes);
  // Copies the next bytes and returns their crc following `before`. At most what is left.
  uint32_t Append(std::string_view bytes, uint32_t before);

  uint64_t left() const { return bytes_ - written_; }
  uint64_t bytes() const { return bytes_; }
  uint32_t header_bytes() const { return header_bytes_; }
  bool valid() const { return budget_ != nullptr; }
  // The blocks, all written, to be released by the caller; good until the builder is used again.
  absl::Span<BlockRef> Take();

 private:
  char* Room(size_t* size);

  PayloadBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t written_ = 0;
  uint64_t reserved_ = 0;  // not yet turned into blocks
  uint32_t header_bytes_ = 0;
  BlockList blocks_;
};

// A payload that is held for reading. A value; holds its blocks.
class PayloadView {
 public:
  PayloadView() = default;
  PayloadView(BlockList blocks, uint64_t bytes, uint32_t header_bytes)
      : blocks_(std::move(blocks)), bytes_(bytes), header_bytes_(header_bytes) {}

  uint64_t bytes() const { return bytes_; }
  uint32_t header_bytes() const { return header_bytes_; }
  std::string_view header() const { return {blocks_[0]->data(), header_bytes_}; }
  // Appends slices for `size` bytes from `offset`; OutOfRange if the payload is shorter.
  absl::Status Slices(uint64_t offset, uint64_t size, std::vector<BlockSlice>* out) const;

 private:
  BlockList blocks_;
  uint64_t bytes_ = 0;
  uint32_t header_bytes_ = 0;
};

struct PayloadUse {
  BudgetUse budget;
  uint64_t payloads = 0;
  uint64_t payload_bytes = 0;
};

class PayloadStore {
 public:
  virtual ~PayloadStore() = default;

  virtual PayloadBudget& budget() = 0;

  // Stores payloads that are written to the end; ids[i] belongs to payloads[i] and can be opened at
  // once. `done` is called when the bytes are as safe as this store makes them, perhaps before
  // Finish returns; until then nothing is acknowledged.
  using Done = std::function<void(const absl::Status&)>;
  virtual void Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids,
                      Done done) = 0;

  // Takes hold of payloads for reading. NotFound, naming the id, if one is not there; then nothing
  // is appended.
  virtual absl::Status Open(absl::Span<const PayloadId> ids, std::vector<PayloadView>* out) = 0;

  // Forgets payloads; ids that are not there are ignored. Views and slices taken before stay good,
  // and count until dropped.
  virtual void Free(absl::Span<const PayloadId> ids) = 0;

  virtual PayloadUse use() const = 0;

  // Appends slices of one payload: Open and Slices at once.
  absl::Status Read(PayloadId id, uint64_t offset, uint64_t size, std::vector<BlockSlice>* out);
};

}  // namespace forebay::storage
