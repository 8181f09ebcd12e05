#include "storage/segment_writer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash.h"

namespace forebay::storage {
namespace {

// Half of what an id can name, so that a batch that begins before the end of a segment fits.
constexpr uint64_t kPayloadBytesMax = kSegmentBytesMax / 2 - (uint64_t{1} << 20);

constexpr char kFull[] = "full";

std::string KindOf(const absl::Status& status) {
  const int error = io::ErrorOf(status);
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? kFull : "failing";
}

absl::Status Closed() { return absl::UnavailableError("the segment store is closed"); }

bool Fits(const WaitingPart& part) {
  return part.head.bytes <= kPayloadBytesMax && (part.hot == nullptr || Fits(*part.hot));
}

SegmentStoreOptions Checked(SegmentStoreOptions options) {
  FOREBAY_CHECK(options.lanes > 0 && options.write_bytes_max % kSegmentPage == 0 &&
                options.write_bytes_max >= 2 * kSegmentPage && options.now_ms != nullptr);
  options.segment_bytes = std::min(options.segment_bytes, kSegmentBytesMax / 2);
  return options;
}

}  // namespace

SegmentWriter::SegmentWriter(io::Disk* disk, const SegmentStoreOptions& options, std::string folder,
                             std::shared_ptr<SegmentTable> table)
    : disk_(disk),
      options_(Checked(options)),
      folder_(std::move(folder)),
      table_(std::move(table)),
      lanes_(2 * size_t{options.lanes}) {
  for (size_t i = options.lanes; i < lanes_.size(); ++i) lanes_[i].part = Part::kCold;
}

void SegmentWriter::Run(Actions actions) {
  if (actions.empty()) return;
  for (auto& action : actions) action();
  table_->budget().EvictForWaiters();
}

// --- from outside ---

void SegmentWriter::Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids,
                           PayloadStore::Done done) {
  FOREBAY_CHECK(payloads.size() == ids.size());
  std::fill(ids.begin(), ids.end(), PayloadId(0));
  auto ticket = std::make_shared<FinishTicket>();
  ticket->ids = ids;
  ticket->left = payloads.size();
  ticket->done = std::move(done);
  std::vector<WaitingPart> taken;
  taken.reserve(payloads.size());
  for (size_t i = 0; i < payloads.size(); ++i) {
    taken.push_back(Take(payloads[i], ticket, i));
    if (!Fits(taken.back())) {
      ticket->status = absl::ResourceExhaustedError(
          absl::StrCat("a payload of ", BytesOf(taken.back()), " bytes does not fit a segment"));
    }
  }
  Actions actions;
  bool waits = !payloads.empty() && ticket->status.ok();
  {
    MutexLock lock(&mutex_);
    if (closed_) ticket->status = Closed();
    waits = waits && !closed_;
    if (waits) {
      for (WaitingPart& part : taken) {
        unsafe_bytes_ += BytesOf(part);
        const Part which = part.hot != nullptr ? Part::kCold : Part::kHot;
        Enqueue(which, std::move(part));
      }
      Pump(&actions);
    }
  }
  if (!waits && ticket->done) ticket->done(ticket->status);
  for (auto& action : actions) action();
}

void SegmentWriter::Start(uint32_t last_number, uint64_t epoch) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    started_ = true;
    epoch_ = epoch;
    last_number_ = last_number;
    Pump(&actions);
  }
  Run(std::move(actions));
}

void SegmentWriter::Tick() {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    GiveUpLate();
    for (Queue& queue : waiting_) queue.gathers = false;
    Pump(&actions);
  }
  Run(std::move(actions));
}

uint64_t SegmentWriter::reserve() const {
  return std::min(options_.reserve_bytes, space_.total_bytes / 10);
}

void SegmentWriter::NoteSpace(const io::Space& space) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    space_ = space;
    room_bytes_ = space.free_bytes - std::min(space.free_bytes, reserve());
    if (options_.reserve_bytes == 0) room_bytes_ = UINT64_MAX;
    if (room_bytes_ > 0) {
      low_since_ms_ = 0;
    } else if (low_since_ms_ == 0) {
      low_since_ms_ = now_ms();
    }
    Pump(&actions);
  }
  Run(std::move(actions));
}

void SegmentWriter::Leave(uint32_t number) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    for (Lane& lane : lanes_) {
      if (lane.segment == nullptr || lane.segment->number != number) continue;
      lane.segment->gone = true;
      if (!InFlight(lane)) DropSegment(lane);
    }
    Pump(&actions);
  }
  Run(std::move(actions));
}

void SegmentWriter::Seal(absl::AnyInvocable<void()> done) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    FOREBAY_CHECK(sealed_ == nullptr);
    if (!started_ || closed_) {
      actions.push_back(std::move(done));
    } else {
      sealed_ = std::move(done);
      Pump(&actions);
    }
  }
  Run(std::move(actions));
}

void SegmentWriter::Close() {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    for (Queue& queue : waiting_) {
      for (WaitingPart& part : queue.parts) GiveUp(part, Closed(), &actions);
      queue = {};
    }
    if (sealed_ != nullptr) actions.push_back(std::exchange(sealed_, nullptr));
  }
  Run(std::move(actions));
}

void SegmentWriter::Enqueue(Part part, WaitingPart waiting) {
  Queue& queue = QueueOf(part);
  queue.bytes += waiting.head.bytes;
  queue.parts.push_back(std::move(waiting));
}

void SegmentWriter::GiveUp(WaitingPart& part, const absl::Status& why, Actions* actions) {
  part.ticket->status = why;
  unsafe_bytes_ -= BytesOf(part);
  // The last references go outside the lock, and its cold part, which nothing names then.
  actions->push_back([self = shared_from_this(), cold = part.head.cold,
                      blocks = std::move(part.blocks), hot = std::move(part.hot)] {
    if (cold != PayloadId()) self->table_->Free({&cold, 1}, self->now_ms());
  });
  Settle(part.ticket, actions);
}

bool SegmentWriter::full() const {
  MutexLock lock(&mutex_);
  return low_since_ms_ > 0 || (failures_ > 0 && trouble_.kind == kFull);
}

StoreTrouble SegmentWriter::trouble() const {
  MutexLock lock(&mutex_);
  StoreTrouble trouble;
  if (low_since_ms_ > 0) {
    trouble.kind = kFull;
    trouble.what = absl::StrCat(space_.free_bytes, " bytes are free, at least ", reserve(),
                                " stay so (storage.reserve_bytes)");
    trouble.path = folder_;
    trouble.since_ms = low_since_ms_;
  } else if (failures_ > 0) {
    trouble = trouble_;
  } else {
    const uint64_t now = now_ms();
    for (const Lane& lane : lanes_) {
      if (!InFlight(lane) || now - lane.since_ms < options_.write_deadline_ms) continue;
      if (!trouble.kind.empty() && trouble.since_ms <= lane.since_ms) continue;
      trouble.kind = progress_ms_ > lane.since_ms ? "slow" : "hung";
      trouble.what = absl::StrCat(lane.stage == Stage::kOpening ? "create" : "write",
                                  " has not ended for ", now - lane.since_ms, " ms");
      trouble.path = lane.segment != nullptr ? lane.segment->path : folder_;
      trouble.since_ms = lane.since_ms;
    }
    if (trouble.kind.empty() && abandoned_ > 0) trouble = late_;
  }
  trouble.waiting_bytes = unsafe_bytes_;
  return trouble;
}

void SegmentWriter::AddUse(StoreUse* use) const {
  MutexLock lock(&mutex_);
  use->writes += use_.writes;
  use->written_bytes += use_.written_bytes;
  use->syncs += use_.syncs;
  use->failed_writes += use_.failed_writes;
  use->abandoned_writes += use_.abandoned_writes;
  use->waiting_bytes += unsafe_bytes_;
  uint64_t in_use = abandoned_;
  for (const Lane& lane : lanes_) in_use += lane.batch != nullptr ? 1 : 0;
  use->buffer_bytes += in_use * options_.write_bytes_max;
}

// --- giving work to lanes ---

bool SegmentWriter::FillsLane(Part part, uint64_t opening) const {
  const Queue& waiting = QueueOf(part);
  if (waiting.parts.empty() || !HasRoom(part)) return false;
  if (waiting.gathers && waiting.bytes < options_.write_bytes_max && sealed_ == nullptr) {
    return false;
  }
  const uint64_t taken = opening * options_.write_bytes_max;
  if (waiting.bytes >= taken + options_.lane_bytes_min) return true;
  const uint64_t now = now_ms();
  return opening == 0 && std::none_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
           return lane.part == part && lane.stage == Stage::kWriting &&
                  now - lane.since_ms < options_.lane_patience_ms;
         });
}

void SegmentWriter::Gather(Part part, Actions* actions) {
  if (options_.after == nullptr || options_.gather_ms == 0) return;
  QueueOf(part).gathers = true;
  actions->push_back([self = shared_from_this(), part] {
    self->options_.after(self->options_.gather_ms, [self, part] { self->EndGathering(part); });
  });
}

void SegmentWriter::EndGathering(Part part) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    QueueOf(part).gathers = false;
    Pump(&actions);
  }
  Run(std::move(actions));
}

bool SegmentWriter::HasRoom(Part part) const {
  return room_bytes_ > (part == Part::kCold ? QueueOf(Part::kHot).bytes : 0);
}

bool SegmentWriter::NoneToCome(Part part) const {
  if (!QueueOf(part).parts.empty()) return false;
  if (part == Part::kCold) return true;
  return QueueOf(Part::kCold).parts.empty() &&
         std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
           return lane.part == Part::kCold && lane.stage == Stage::kWriting;
         });
}

void SegmentWriter::Pump(Actions* actions) {
  if (!started_ || closed_) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (InFlight(lane) || lane.segment == nullptr) continue;
    if (lane.segment->end >= options_.segment_bytes) {
      StartSeal(i, actions);
    } else if (FillsLane(lane.part, 0)) {
      StartBatch(i, actions);
    } else if (sealed_ != nullptr && NoneToCome(lane.part)) {
      lane.segment->end > 0 ? StartSeal(i, actions) : DropSegment(lane);
    }
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (!InFlight(lane) && lane.segment == nullptr && MayOpen(lane.part)) StartOpen(i, actions);
  }
  const bool all_sealed =
      NoneToCome(Part::kHot) && std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
        return InFlight(lane) || lane.segment != nullptr;
      });
  if (sealed_ != nullptr && all_sealed) actions->push_back(std::exchange(sealed_, nullptr));
}

// No more new segments than what waits can use; in trouble one at a time, and not too often.
bool SegmentWriter::MayOpen(Part part) const {
  const Queue& waiting = QueueOf(part);
  if (waiting.parts.empty() || !HasRoom(part)) return false;
  const auto opening =
      static_cast<uint64_t>(std::count_if(lanes_.begin(), lanes_.end(), [part](const Lane& lane) {
        return lane.part == part && lane.stage == Stage::kOpening;
      }));
  if (failures_ == 0) return opening < waiting.parts.size() && FillsLane(part, opening);
  return now_ms() >= retry_at_ms_ && std::none_of(lanes_.begin(), lanes_.end(), InFlight);
}

void SegmentWriter::StartOpen(size_t lane, Actions* actions) {
  if (last_number_ >= kSegmentNumberMax) {
    NoteFailure(absl::ResourceExhaustedError("all segment numbers are used up"), folder_);
    return;
  }
  auto segment = std::make_unique<OpenSegment>();
  segment->number = ++last_number_;
  segment->nonce = HashCombine(options_.seed, segment->number);
  segment->path = absl::StrCat(folder_, "/",
                               FileNameOf({.node = options_.node,
                                           .epoch = epoch_,
                                           .incarnation = options_.incarnation,
                                           .number = segment->number}));
  lanes_[lane].stage = Stage::kOpening;
  lanes_[lane].since_ms = now_ms();
  actions->push_back([self = shared_from_this(), lane, segment = std::move(segment)]() mutable {
    const std::string path = segment->path;
    self->disk_->Open(path, {.mode = io::OpenMode::kCreate, .direct = self->options_.direct},
                      [self, lane, segment = std::move(segment)](auto file) mutable {
                        self->Opened(lane, std::move(segment), std::move(file));
                      });
  });
}

void SegmentWriter::Opened(size_t lane, std::unique_ptr<OpenSegment> segment,
                           absl::StatusOr<io::FileRef> file) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    lanes_[lane].stage = Stage::kIdle;
    if (file.ok()) {
      progress_ms_ = now_ms();
      segment->file = *std::move(file);
      table_->OpenSegment(segment->number, lanes_[lane].part, segment->path, segment->file);
      lanes_[lane].segment = std::move(segment);
    } else if (io::ErrorOf(file.status()) != EEXIST) {
      NoteFailure(file.status(), segment->path);
      // Over a network it may be there all the same. Nobody else has this name.
      actions.push_back([self = shared_from_this(), path = segment->path] {
        self->disk_->Unlink(path, [self](const absl::Status&) {});
      });
    }
    Pump(&actions);
  }
  Run(std::move(actions));
}

SegmentWriter::BatchRef SegmentWriter::NewBatch(size_t lane, Stage stage) {
  const OpenSegment& segment = *lanes_[lane].segment;
  if (buffers_.empty()) buffers_.emplace_back(options_.write_bytes_max);
  auto batch = std::make_shared<SegmentBatch>(lane, segment.number, segment.file, segment.end,
                                              std::move(buffers_.back()));
  buffers_.pop_back();
  lanes_[lane].batch = batch;
  lanes_[lane].stage = stage;
  lanes_[lane].since_ms = now_ms();
  return batch;
}

void SegmentWriter::StartBatch(size_t lane, Actions* actions) {
  BatchRef batch = NewBatch(lane, Stage::kWriting);
  OpenSegment& segment = *lanes_[lane].segment;
  if (segment.end == 0) {
    batch->AddBytes(EncodeSegmentHeader({.cluster = options_.cluster,
                                         .name = {.node = options_.node,
                                                  .epoch = epoch_,
                                                  .incarnation = options_.incarnation,
                                                  .number = segment.number},
                                         .nonce = segment.nonce,
                                         .part = lanes_[lane].part}));
  }
  if (!segment.entry_synced) batch->entry_folder = folder_;
  Queue& waiting = QueueOf(lanes_[lane].part);
  while (!waiting.parts.empty()) {
    WaitingPart& next = waiting.parts.front();
    if (!batch->parts.empty() && batch->EndWith(next) - batch->begin() > options_.write_bytes_max) {
      break;
    }
    waiting.bytes -= next.head.bytes;
    batch->Add(std::move(next));
    waiting.parts.pop_front();
  }
  waiting.gathers = false;
  segment.end = batch->end();
  if (room_bytes_ != UINT64_MAX) {
    room_bytes_ -= std::min(room_bytes_, batch->end() - batch->begin());
  }
  actions->push_back([self = shared_from_this(), batch] { self->WriteNext(batch); });
}

void SegmentWriter::StartSeal(size_t lane, Actions* actions) {
  BatchRef batch = NewBatch(lane, Stage::kSealing);
  OpenSegment& segment = *lanes_[lane].segment;
  batch->seals = true;
  batch->AddBytes(EncodeSegmentFooter(
      {.nonce = segment.nonce, .records = table_->IndexOf(segment.number)}, segment.end));
  segment.end = batch->end();
  actions->push_back([self = shared_from_this(), batch] { self->WriteNext(batch); });
}

// --- the way of a batch ---

void SegmentWriter::Lend(SegmentBatch& batch) {
  MutexLock lock(&mutex_);
  batch.with_disk = true;
  lanes_[batch.lane].since_ms = now_ms();
}

void SegmentWriter::WriteNext(const BatchRef& batch) {
  SegmentBatch::Write write = batch->Next();
  if (write.bytes == 0) return SyncBatch(batch);
  // One write syncs itself; of several none does, and they are synced together.
  const bool alone = write.offset == batch->begin() && batch->AtEnd();
  Lend(*batch);
  auto done = [self = shared_from_this(), batch, bytes = write.bytes,
               alone](const absl::Status& status) {
    if (status.ok()) {
      MutexLock lock(&self->mutex_);
      ++self->use_.writes;
      self->use_.written_bytes += bytes;
    }
    self->Answered(batch, status, alone ? &SegmentWriter::SyncEntry : &SegmentWriter::WriteNext);
  };
  if (alone) {
    disk_->WriteSynced(batch->file, write.offset, std::move(write.pieces), std::move(done));
  } else {
    disk_->Write(batch->file, write.offset, std::move(write.pieces), std::move(done));
  }
}

void SegmentWriter::SyncBatch(const BatchRef& batch) {
  Lend(*batch);
  disk_->Sync(batch->file, [self = shared_from_this(), batch](const absl::Status& status) {
    self->Answered(batch, status, &SegmentWriter::SyncEntry);
  });
}

void SegmentWriter::SyncEntry(const BatchRef& batch) {
  if (batch->entry_folder.empty()) return Ended(batch, absl::OkStatus());
  Lend(*batch);
  disk_->SyncDirectory(batch->entry_folder,
                       [self = shared_from_this(), batch](const absl::Status& status) {
                         if (!status.ok()) return self->Answered(batch, status, nullptr);
                         batch->entry_folder.clear();
                         self->Answered(batch, status, &SegmentWriter::SyncEntry);
                       });
}

void SegmentWriter::Answered(const BatchRef& batch, const absl::Status& status,
                             void (SegmentWriter::*next)(const BatchRef&)) {
  {
    MutexLock lock(&mutex_);
    batch->with_disk = false;
    if (batch->given_up) {
      --abandoned_;
      buffers_.push_back(std::move(batch->buffer));
      return;
    }
    if (status.ok()) progress_ms_ = now_ms();
  }
  status.ok() ? (this->*next)(batch) : Ended(batch, status);
}

void SegmentWriter::Ended(const BatchRef& batch, absl::Status status) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    Lane& lane = lanes_[batch->lane];
    FOREBAY_CHECK(lane.batch == batch);
    lane.batch = nullptr;
    lane.stage = Stage::kIdle;
    buffers_.push_back(std::move(batch->buffer));
    ++use_.syncs;
    if (status.ok() && lane.segment->gone) {
      status = io::ErrnoStatus(ENOENT, "write", lane.segment->path, "the file is gone");
    }
    if (status.ok()) {
      failures_ = 0;
      lane.segment->entry_synced = true;
      Succeeded(*batch, &actions);
      if (batch->seals) DropSegment(lane);
      if (batch->end() - batch->begin() >= options_.lane_bytes_min) Gather(lane.part, &actions);
    } else {
      NoteFailure(status, lane.segment->path);
      if (closed_) {
        for (WaitingPart& part : batch->parts) GiveUp(part, Closed(), &actions);
      } else {
        Requeue(*batch);
      }
      DropSegment(lane);
    }
    Pump(&actions);
  }
  Run(std::move(actions));
}

void SegmentWriter::Succeeded(SegmentBatch& batch, Actions* actions) {
  std::vector<StoredPart> stored;
  stored.reserve(batch.parts.size());
  for (WaitingPart& part : batch.parts) stored.push_back({part.head, std::move(part.blocks)});
  if (!stored.empty()) table_->Add(batch.segment, std::move(stored), batch.end());
  for (WaitingPart& part : batch.parts) {
    unsafe_bytes_ -= part.head.bytes;
    if (part.hot == nullptr) {
      part.ticket->ids[part.index] = part.head.id;
      Settle(part.ticket, actions);
      continue;
    }
    part.hot->head.cold = part.head.id;
    closed_ ? GiveUp(*part.hot, Closed(), actions) : Enqueue(Part::kHot, std::move(*part.hot));
  }
}

void SegmentWriter::Settle(const std::shared_ptr<FinishTicket>& ticket, Actions* actions) {
  if (--ticket->left > 0) return;
  actions->push_back([self = shared_from_this(), ticket] {
    if (!ticket->status.ok()) {
      self->table_->Free(ticket->ids, self->now_ms());
      std::fill(ticket->ids.begin(), ticket->ids.end(), PayloadId(0));
    }
    if (ticket->done) std::exchange(ticket->done, nullptr)(ticket->status);
  });
}

// --- trouble ---

void SegmentWriter::Requeue(SegmentBatch& batch) {
  Queue& queue = QueueOf(lanes_[batch.lane].part);
  for (auto part = batch.parts.rbegin(); part != batch.parts.rend(); ++part) {
    queue.bytes += part->head.bytes;
    queue.parts.push_front(std::move(*part));
  }
  batch.parts.clear();
}

void SegmentWriter::DropSegment(Lane& lane) {
  table_->CloseSegment(lane.segment->number, lane.segment->end, now_ms());
  lane.segment = nullptr;
}

void SegmentWriter::NoteFailure(const absl::Status& status, const std::string& path) {
  if (failures_++ == 0) trouble_.since_ms = now_ms();
  ++use_.failed_writes;
  trouble_.kind = KindOf(status);
  trouble_.what = std::string(status.message());
  trouble_.path = path;
  const uint64_t doublings = std::min<uint64_t>(failures_ - 1, 20);
  retry_at_ms_ = now_ms() + std::min(options_.retry_most_ms, options_.retry_least_ms << doublings);
}

void SegmentWriter::GiveUpLate() {
  const uint64_t now = now_ms();
  for (Lane& lane : lanes_) {
    if (lane.batch == nullptr || !lane.batch->with_disk) continue;
    const bool late = now - lane.since_ms >= options_.write_deadline_ms;
    const bool others_go_on =
        progress_ms_ > lane.since_ms && now - progress_ms_ < options_.write_deadline_ms;
    if (!late || !others_go_on || abandoned_ >= options_.abandoned_max) continue;
    ++abandoned_;
    ++use_.abandoned_writes;
    late_ = {.kind = "slow",
             .what = absl::StrCat("a write had not ended after ", now - lane.since_ms, " ms"),
             .path = lane.segment->path,
             .since_ms = lane.since_ms};
    lane.batch->given_up = true;
    Requeue(*lane.batch);
    DropSegment(lane);
    lane.batch = nullptr;
    lane.stage = Stage::kIdle;
  }
}

}  // namespace forebay::storage
