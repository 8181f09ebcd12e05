// The payload store on disk: every payload is written to a segment file and synced before it is
// acknowledged; memory is a cache of it.
//
// An id says where a payload lies (segment_format.h), so that ids outlive the process: the caller's
// log names the live ones, and Recover finds them again. What is finished before Recover has ended
// waits for it. Memory never goes above the budget; what nobody wants or holds is given up when
// the budget is short, and Load reads it back.
//
// Parts: segment_table (what is where), segment_writer, segment_reader, segment_recovery,
// segment_presence.
// Thread-safe; no threads of its own: Tick, every 10 ms or so, looks at the time. Callbacks run on
// the caller's thread or the disk's, without a lock held, and must not block. The disk must outlive
// the store, which may be destroyed at any time: what is not answered then is answered Unavailable.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/sync.h"
#include "io/disk.h"
#include "storage/payload_store.h"
#include "storage/segment_checker.h"
#include "storage/segment_options.h"
#include "storage/segment_presence.h"
#include "storage/segment_reader.h"
#include "storage/segment_recovery.h"
#include "storage/segment_table.h"
#include "storage/segment_writer.h"

namespace forebay::storage {

class SegmentStore final : public PayloadStore {
 public:
  SegmentStore(io::Disk* disk, const SegmentStoreOptions& options);
  ~SegmentStore() override;

  // Before Recover: of this reign, where nodes write to the store one after another.
  void SetEpoch(uint64_t epoch) { epoch_ = epoch; }
  // Once, before anything is loaded: `live` are the payloads that the log names. After an error it
  // may be called again.
  void Recover(std::vector<PayloadId> live, io::Disk::DoneWith<StoreRecovery> done);
  // Before Recover: files that nothing live is in stay, for somebody who cannot be asked may need
  // them. The next start finds out.
  void HoldGarbage() { holds_garbage_ = true; }
  bool holds_garbage() const { return holds_garbage_; }
  void Tick();
  // Before a clean end: with an index in every segment the next start reads no more than those.
  // See SegmentWriter::Seal.
  void Seal(absl::AnyInvocable<void()> done) { writer_->Seal(std::move(done)); }

  PayloadBudget& budget() override { return table_->budget(); }
  void Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids, Done done) override;
  using PayloadStore::Open;
  absl::Status Open(absl::Span<const PayloadId> ids, Parts parts,
                    std::vector<PayloadView>* out) override;
  void LoadParts(std::vector<PayloadParts> wanted, LoadDone done) override;
  void Want(StepId step, std::vector<PayloadId> ids) override;
  void Cool(absl::Span<const PayloadId> ids) override;
  void Free(absl::Span<const PayloadId> ids) override;
  PayloadUse use() const override;

  // Cached bytes that others may have; cheap, while store_use() looks at every segment.
  uint64_t GivesWayBytes() const { return table_->GivesWayBytes(); }
  StoreUse store_use() const;
  bool full() const { return writer_->full(); }
  // Of writing, else of files that are gone, else of reading.
  StoreTrouble trouble() const;
  const std::string& folder() const { return folder_; }

  // What lies on the disk, for whoever wants to look at all of it; see SegmentTable::LiveAfter.
  std::vector<LiveRecord> LiveAfter(PayloadId* after, size_t most) const {
    return table_->LiveAfter(after, most);
  }
  bool Holds(PayloadId id) const { return table_->Holds(id); }
  std::shared_ptr<SegmentChecker> NewChecker() const {
    return std::make_shared<SegmentChecker>(disk_, options_, table_);
  }

 private:
  void LookAtSpace();
  void UnlinkDead();

  io::Disk* const disk_;
  const SegmentStoreOptions options_;
  const std::string folder_;
  const std::shared_ptr<SegmentTable> table_;
  const std::shared_ptr<SegmentWriter> writer_;
  const std::shared_ptr<SegmentPresence> presence_;
  const std::shared_ptr<SegmentReader> reader_;
  uint64_t epoch_;
  std::atomic<bool> holds_garbage_{false};
  uint64_t space_due_ms_ = 0;   // Tick's
  uint64_t full_until_ms_ = 0;  // likewise: files that are dead go soon
  const std::shared_ptr<std::atomic<bool>> looks_at_space_ = std::make_shared<std::atomic<bool>>();
};

}  // namespace forebay::storage
