// Where the bytes of rollouts live, from the push to the step that consumes them: the seam between
// RAM and the disk store.
//
// A stored payload is the rollout's encoded header, then its columns' bytes; the last of them may
// be its cold part, which is kept and read apart. Writing: reserve the footprint in the budget,
// fill a PayloadBuilder (copying with crc on the way), Finish. Reading: Load fetches what is not in
// memory first; Open takes references to what is, under one lock; slices need none. Thread-safe,
// except that one builder belongs to one thread at a time. An id that was freed reads NotFound, and
// is not given again soon.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "storage/block.h"
#include "storage/payload_budget.h"
#include "storage/payload_parts.h"

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

  // What a payload of `bytes` bytes takes from the budget, and of `cold_bytes` more in a cold part.
  static uint64_t Footprint(uint64_t bytes);
  static uint64_t Footprint(uint64_t bytes, uint64_t cold_bytes) {
    return Footprint(bytes) + Footprint(cold_bytes);
  }

  // `bytes`: header and hot columns together, above 0; `cold_bytes`: of the columns behind them, 0
  // if none is cold. The caller has reserved Footprint(bytes, cold_bytes), and passes it on.
  PayloadBuilder(PayloadBudget* budget, uint64_t bytes, uint64_t cold_bytes = 0) {
    Begin(budget, bytes, cold_bytes);
  }
  // The same, of a builder that holds nothing.
  void Begin(PayloadBudget* budget, uint64_t bytes, uint64_t cold_bytes = 0);

  // The first bytes; at most a block's, in one piece.
  void AppendHeader(std::string_view header);
  // Whether a payload without a cold part is small enough for BeginWhole.
  static bool IsWhole(std::string_view header, uint64_t payload_bytes) {
    const uint64_t bytes = header.size() + payload_bytes;
    return bytes > 0 && bytes <= Block::kBytesMax;
  }
  // Begin and AppendHeader, of a payload in one block; the caller writes its columns' bytes, all of
  // them, to what this returns.
  char* BeginWhole(PayloadBudget* budget, std::string_view header, uint64_t payload_bytes);
  // Copies the next bytes and returns their crc following `before`. At most what is left.
  uint32_t Append(std::string_view bytes, uint32_t before);
  // Tells the crc of the next `size` bytes after the header that have been written, so that Crc
  // need not read them again; of a small payload that is not worth it. All of one part.
  bool notes_crc() const { return bytes() >= kNotedBytesMin; }
  void NoteCrc(uint32_t crc, uint64_t size);

  uint64_t left() const { return bytes() - written_; }
  // Of both parts.
  uint64_t bytes() const { return parts_[0].bytes + parts_[1].bytes; }
  uint64_t bytes(Part part) const { return parts_[static_cast<size_t>(part)].bytes; }
  uint32_t header_bytes() const { return header_bytes_; }
  bool valid() const { return budget_ != nullptr; }
  // Of a part's bytes, header included, when they are written.
  uint32_t Crc(Part part = Part::kHot) const;
  // The blocks, all written, those of the hot part first, to be released by the caller; good until
  // the builder is used again.
  struct Blocks {
    absl::Span<BlockRef> hot, cold;
  };
  Blocks Take();

 private:
  static constexpr uint64_t kNotedBytesMin = 128 << 10;

  struct PartState {
    uint64_t bytes = 0;
    uint64_t summed = 0;
    uint32_t crc = 0;  // of the first summed bytes
  };
  // Bytes of the next to be written that belong to the same part.
  uint64_t LeftOfPart() const {
    return written_ < parts_[0].bytes ? parts_[0].bytes - written_ : left();
  }
  char* Room(size_t* size);
  size_t HotBlocks() const {
    return static_cast<size_t>((parts_[0].bytes + Block::kBytesMax - 1) / Block::kBytesMax);
  }

  PayloadBudget* budget_ = nullptr;
  uint64_t written_ = 0;
  uint64_t reserved_ = 0;  // not yet turned into blocks
  uint32_t header_bytes_ = 0;
  std::array<PartState, 2> parts_;  // hot, cold
  BlockList blocks_;
};

// A payload that is held for reading, or its hot part alone. A value; holds its blocks.
class PayloadView {
 public:
  PayloadView() = default;
  // `bytes` and `cold_bytes`: as of a PayloadBuilder.
  PayloadView(uint64_t bytes, uint64_t cold_bytes, uint32_t header_bytes)
      : bytes_{bytes, cold_bytes}, header_bytes_(header_bytes) {}
  void Hold(Part part, BlockList blocks) { blocks_[static_cast<size_t>(part)] = std::move(blocks); }

  // Of both parts, whether they are held or not.
  uint64_t bytes() const { return bytes_[0] + bytes_[1]; }
  uint64_t bytes(Part part) const { return bytes_[static_cast<size_t>(part)]; }
  bool holds(Part part) const { return !blocks_[static_cast<size_t>(part)].empty(); }
  // Of what is held.
  uint64_t footprint() const;
  uint32_t header_bytes() const { return header_bytes_; }
  // Of a payload whose hot part is held.
  std::string_view header() const { return {blocks_[0][0]->data(), header_bytes_}; }
  // Appends slices for `size` bytes from `offset`; OutOfRange if the payload is shorter,
  // FailedPrecondition if some of them lie in a part that is not held. Then nothing is appended.
  absl::Status Slices(uint64_t offset, uint64_t size, std::vector<BlockSlice>* out) const;

 private:
  std::array<BlockList, 2> blocks_;  // hot, cold
  std::array<uint64_t, 2> bytes_ = {0, 0};
  uint32_t header_bytes_ = 0;
};

struct PayloadUse {
  BudgetUse budget;
  uint64_t payloads = 0;
  uint64_t payload_bytes = 0;
};

// DataLoss of a payload whose bytes cannot be read any more, NotFound of one that is not there; and
// the payloads that such a status is of, none of any other one.
absl::Status LostStatus(PayloadId payload, std::string_view what);
absl::Status MissingStatus(PayloadId payload);
std::vector<PayloadId> LostOf(const absl::Status& status);
// Of both. What is lost counts more than other errors; `first` may be OK.
absl::Status JoinLost(const absl::Status& first, const absl::Status& second);

class PayloadStore {
 public:
  virtual ~PayloadStore() = default;

  virtual PayloadBudget& budget() = 0;

  // Stores payloads that are written to the end. `done` is called when the bytes are as safe as
  // this store makes them, perhaps before Finish returns; until then nothing is acknowledged.
  // With done(ok), and not before, ids[i] belongs to payloads[i]; until `done` the ids' memory is
  // the store's. After an error nothing is stored.
  using Done = std::function<void(const absl::Status&)>;
  virtual void Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids,
                      Done done) = 0;

  // Takes hold of payloads of which `parts` are in memory. NotFound, naming the id, if one is not
  // there, Unavailable if one has to be read back (Load does it); then nothing is appended.
  virtual absl::Status Open(absl::Span<const PayloadId> ids, Parts parts,
                            std::vector<PayloadView>* out) = 0;
  absl::Status Open(absl::Span<const PayloadId> ids, std::vector<PayloadView>* out) {
    return Open(ids, Parts::kAll, out);
  }

  // The same of all payloads: those that are not in memory are read back first, in memory that is
  // reserved before new pushes get any. `done` is called once, perhaps before Load returns, with a
  // view for each id, or NotFound; DataLoss, naming file and offset, of damaged bytes (LostOf names
  // the payloads); ResourceExhausted of more than the budget ever holds. Who wants a cold part
  // besides loads the payload anew, and holds no view meanwhile: loads that wait for memory while
  // they hold some would wait for each other.
  using LoadDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<PayloadView>>)>;
  virtual void LoadParts(std::vector<PayloadParts> wanted, LoadDone done);
  void Load(const std::vector<PayloadId>& ids, Parts parts, LoadDone done);

  // What a step will load, in about this order, in place of what was said of it before; empty if it
  // loads nothing any more. What is not in memory of their hot parts is read in the background
  // ahead of the loads, as far as the store's limits allow, the lowest step first.
  virtual void Want(StepId step, std::vector<PayloadId> ids);

  // Nobody will load these for long, if ever: their memory is given up where they can be read back.
  virtual void Cool(absl::Span<const PayloadId> ids);

  // Forgets payloads; ids that are not there are ignored. Views and slices taken before stay good,
  // and count until dropped.
  virtual void Free(absl::Span<const PayloadId> ids) = 0;

  virtual PayloadUse use() const = 0;

  // Appends slices of one payload: Open and Slices at once.
  absl::Status Read(PayloadId id, uint64_t offset, uint64_t size, std::vector<BlockSlice>* out);
};

}  // namespace forebay::storage
