#include "storage/segment_store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::storage {

SegmentStore::SegmentStore(io::Disk* disk, const SegmentStoreOptions& options)
    : disk_(disk),
      options_(options),
      folder_(absl::StrCat(options.directory, "/segments")),
      table_(std::make_shared<SegmentTable>(options)),
      writer_(std::make_shared<SegmentWriter>(disk, options, folder_, table_)),
      presence_(std::make_shared<SegmentPresence>(disk, options, folder_, table_, writer_)),
      reader_(std::make_shared<SegmentReader>(disk, options, table_, presence_)),
      epoch_(options.epoch) {
  FOREBAY_CHECK(IsNodeName(options.node) && options.cluster.size() <= kClusterNameBytesMax);
}

SegmentStore::~SegmentStore() {
  presence_->Close();
  writer_->Close();
  reader_->Close();
}

void SegmentStore::Recover(std::vector<PayloadId> live, io::Disk::DoneWith<StoreRecovery> done) {
  RecoverSegments(disk_, options_, folder_, table_, std::move(live),
                  [writer = writer_, presence = presence_, epoch = epoch_,
                   done = std::move(done)](auto result) mutable {
                    if (result.ok()) {
                      writer->Start(result->last_number, epoch);
                      presence->Start();
                    }
                    done(std::move(result));
                  });
}

void SegmentStore::Tick() {
  LookAtSpace();
  writer_->Tick();
  reader_->Tick();
  presence_->Tick();
  table_->budget().EvictForWaiters();
  UnlinkDead();
}

void SegmentStore::Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids,
                          Done done) {
  writer_->Finish(payloads, ids, std::move(done));
}

absl::Status SegmentStore::Open(absl::Span<const PayloadId> ids, Parts parts,
                                std::vector<PayloadView>* out) {
  return table_->Open(ids, parts, out);
}

void SegmentStore::LoadParts(std::vector<PayloadParts> wanted, LoadDone done) {
  reader_->Load(std::move(wanted), std::move(done));
}

void SegmentStore::Want(StepId step, std::vector<PayloadId> ids) {
  table_->Want(step, std::move(ids));
  reader_->ReadAhead();
}

void SegmentStore::Cool(absl::Span<const PayloadId> ids) {
  table_->Cool(ids);
  reader_->ReadAhead();
}

void SegmentStore::Free(absl::Span<const PayloadId> ids) { table_->Free(ids, options_.now_ms()); }

PayloadUse SegmentStore::use() const { return table_->use(); }

StoreUse SegmentStore::store_use() const {
  StoreUse use;
  table_->AddUse(&use);
  writer_->AddUse(&use);
  reader_->AddUse(&use);
  presence_->AddUse(&use);
  return use;
}

StoreTrouble SegmentStore::trouble() const {
  StoreTrouble trouble = writer_->trouble();
  if (!trouble.kind.empty()) return trouble;
  const uint64_t waiting_bytes = trouble.waiting_bytes;
  trouble = presence_->trouble();
  if (trouble.kind.empty()) trouble = reader_->trouble();
  trouble.waiting_bytes = waiting_bytes;
  return trouble;
}

// What is free is not known while the file system does not say: then what it said last holds.
void SegmentStore::LookAtSpace() {
  const uint64_t now = options_.now_ms();
  if (options_.reserve_bytes == 0 || now < space_due_ms_ || looks_at_space_->exchange(true)) return;
  space_due_ms_ = now + options_.space_look_ms;
  disk_->SpaceOf(folder_, [writer = writer_, looks = looks_at_space_](const auto& space) {
    if (space.ok()) writer->NoteSpace(*space);
    *looks = false;
  });
}

void SegmentStore::UnlinkDead() {
  if (holds_garbage_) return;
  const uint64_t now = options_.now_ms();
  if (full()) full_until_ms_ = now + options_.gc_grace_ms;
  const uint64_t grace = now < full_until_ms_
                             ? std::min(options_.gc_grace_ms, options_.gc_grace_when_full_ms)
                             : options_.gc_grace_ms;
  for (auto& [number, path] : table_->TakeDead(now, grace)) {
    disk_->Unlink(path, [table = table_, number = number,
                         now_ms = options_.now_ms](const absl::Status& status) {
      // Over a network it may have happened though an error came back.
      if (status.ok() || io::ErrorOf(status) == ENOENT) return table->Forget(number);
      table->KeepDead(number, now_ms());
    });
  }
}

}  // namespace forebay::storage
