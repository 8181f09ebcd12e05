// The payload store that keeps everything in RAM.
//
// Thread-safe; one lock, held for pointer work only, once a call however many payloads it names.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "storage/payload_store.h"

namespace forebay::storage {

struct RamPayloadStoreOptions {
  uint64_t bytes_max = uint64_t{4} << 30;
  uint64_t completion_reserve_bytes = uint64_t{256} << 20;
};

class RamPayloadStore : public PayloadStore {
 public:
  explicit RamPayloadStore(const RamPayloadStoreOptions& options);
  ~RamPayloadStore() override;

  PayloadBudget& budget() override { return *budget_; }
  void Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids, Done done) override;
  using PayloadStore::Open;
  absl::Status Open(absl::Span<const PayloadId> ids, Parts parts,
                    std::vector<PayloadView>* out) override;
  void Free(absl::Span<const PayloadId> ids) override;
  PayloadUse use() const override;

 private:
  // A payload of one block has it inline, one of several has an array of them, the hot part's
  // first.
  struct Entry {
    uint32_t generation = 0;  // odd while it is used
    uint32_t header_bytes = 0;
    uint64_t bytes = 0, cold_bytes = 0;
    union {
      Block* block;
      Block** blocks;
      uint64_t next_free;  // slot + 1; 0: none
    };
  };
  static constexpr size_t kChunk = 4096;
  using Chunk = std::array<Entry, kChunk>;

  static size_t BlockCount(uint64_t bytes) {
    return (bytes + Block::kBytesMax - 1) / Block::kBytesMax;
  }
  static size_t BlockCount(const Entry& entry) {
    return BlockCount(entry.bytes) + BlockCount(entry.cold_bytes);
  }
  Entry& At(uint64_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Entry* Find(PayloadId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PayloadId Insert(PayloadBuilder& payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static PayloadView Hold(const Entry& entry, Parts parts);

  PayloadBudget::Owner budget_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Chunk>> chunks_ ABSL_GUARDED_BY(mutex_);
  uint64_t slots_ ABSL_GUARDED_BY(mutex_) = 0;  // ever used
  uint64_t free_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t payloads_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::storage
