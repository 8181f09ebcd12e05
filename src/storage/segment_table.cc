#include "storage/segment_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::storage {

SegmentTable::SegmentTable(const SegmentStoreOptions& options)
    : want_bytes_max_(options.want_bytes_max),
      files_max_(options.files_max),
      budget_(PayloadBudget::New(options.bytes_max, options.completion_reserve_bytes)) {
  budget_->SetEvictor([this](uint64_t bytes, bool reading) { return Evict(bytes, reading); });
}

SegmentTable::~SegmentTable() {
  budget_->SetEvictor(nullptr);
  std::vector<Block*> blocks;
  {
    MutexLock lock(&mutex_);
    for (auto& [number, segment] : segments_) {
      for (Record& record : segment.records) {
        for (BlockRef& block : record.blocks) blocks.push_back(block.Release());
      }
    }
  }
  Block::UnrefAll(blocks);
}

// --- lists ---

void SegmentTable::List::AddYoungest(Record* record) {
  record->older = youngest;
  record->younger = nullptr;
  (youngest != nullptr ? youngest->younger : oldest) = record;
  youngest = record;
}

void SegmentTable::List::AddOldest(Record* record) {
  record->younger = oldest;
  record->older = nullptr;
  (oldest != nullptr ? oldest->older : youngest) = record;
  oldest = record;
}

void SegmentTable::List::Remove(Record* record) {
  (record->older != nullptr ? record->older->younger : oldest) = record->younger;
  (record->younger != nullptr ? record->younger->older : youngest) = record->older;
  record->older = record->younger = nullptr;
}

// --- the writer's ---

void SegmentTable::OpenSegment(uint32_t number, Part part, std::string path, io::FileRef file) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_[number];
  segment.part = part;
  segment.path = std::move(path);
  segment.file = std::move(file);
}

SegmentTable::Record& SegmentTable::AddRecord(Segment* segment, const RecordHead& head) {
  Record& record = segment->records.emplace_back();
  record.head = head;
  record.part = segment->part;
  if (head.cold != PayloadId()) {
    record.other = Find(head.cold);
    FOREBAY_CHECK(record.other != nullptr && record.other->part == Part::kCold &&
                  record.other->other == nullptr && record.part == Part::kHot);
    record.other->other = &record;
  }
  segment->live_bytes += RecordBytes(head.bytes);
  ++segment->live;
  payloads_ += record.part == Part::kHot ? 1 : 0;
  payload_bytes_ += head.bytes;
  return record;
}

void SegmentTable::Add(uint32_t number, std::vector<StoredPart> parts, uint64_t file_bytes) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_.at(number);
  FOREBAY_CHECK(segment.state == State::kOpen);
  newest_ = std::max(newest_, number);
  segment.file_bytes = file_bytes;
  for (StoredPart& part : parts) {
    FOREBAY_CHECK(segment.records.empty() ||
                  PlaceOf(segment.records.back().head.id).offset < PlaceOf(part.head.id).offset);
    Record& record = AddRecord(&segment, part.head);
    record.blocks = std::move(part.blocks);
    CountResident(record, true);
    ListOf(record).AddYoungest(&record);
  }
}

std::vector<RecordHead> SegmentTable::IndexOf(uint32_t number) const {
  MutexLock lock(&mutex_);
  const Segment& segment = segments_.at(number);
  std::vector<RecordHead> heads;
  heads.reserve(segment.records.size());
  for (const Record& record : segment.records) heads.push_back(record.head);
  return heads;
}

std::vector<io::FileRef> SegmentTable::AddFile(uint32_t number) {
  files_.push_back(number);
  std::vector<io::FileRef> closed;
  for (; files_.size() > files_max_; files_.pop_front()) {
    const auto oldest = segments_.find(files_.front());
    if (oldest != segments_.end()) closed.push_back(std::move(oldest->second.file));
  }
  return closed;
}

void SegmentTable::CloseSegment(uint32_t number, uint64_t file_bytes, uint64_t now_ms) {
  std::vector<io::FileRef> closed;  // outside the lock
  MutexLock lock(&mutex_);
  Segment& segment = segments_.at(number);
  segment.state = State::kClosed;
  segment.file_bytes = std::max(segment.file_bytes, file_bytes);
  if (segment.live > 0) {
    closed = AddFile(number);
    return;
  }
  segment.state = State::kDead;
  segment.dead_since_ms = segment.records.empty() ? 0 : now_ms;
  closed.push_back(std::move(segment.file));
  segment.records.clear();
}

void SegmentTable::Restore(uint32_t number, Part part, std::string path, uint64_t file_bytes,
                           const std::vector<RecordHead>& live, uint64_t now_ms) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_[number];
  newest_ = std::max(newest_, number);
  segment.part = part;
  segment.path = std::move(path);
  segment.state = live.empty() ? State::kDead : State::kClosed;
  segment.dead_since_ms = now_ms;
  segment.file_bytes = file_bytes;
  for (const RecordHead& head : live) AddRecord(&segment, head);
}

// --- the readers' ---

SegmentTable::Record* SegmentTable::Find(PayloadId id) {
  const auto segment = segments_.find(PlaceOf(id).segment);
  if (segment == segments_.end()) return nullptr;
  auto& records = segment->second.records;
  const uint64_t offset = PlaceOf(id).offset;
  const auto at = std::partition_point(records.begin(), records.end(), [offset](const Record& r) {
    return PlaceOf(r.head.id).offset < offset;
  });
  return at != records.end() && at->head.id == id && at->live ? &*at : nullptr;
}

SegmentTable::Record* SegmentTable::FindPayload(PayloadId id) {
  Record* const record = Find(id);
  return record != nullptr && record->part == Part::kHot ? record : nullptr;
}

void SegmentTable::CountResident(const Record& record, bool in_memory) {
  const auto count = [&](uint64_t* bytes) {
    in_memory ? * bytes += FootprintOf(record) : * bytes -= FootprintOf(record);
  };
  count(&use_.resident_bytes);
  if (record.part == Part::kCold) count(&use_.cold_resident_bytes);
}

void SegmentTable::SetUse(Record* record, Use use) {
  const uint64_t footprint = FootprintOf(*record);
  const bool in_memory = !record->blocks.empty();
  if (in_memory) ListOf(*record).Remove(record);
  if (in_memory && record->use == Use::kLoaded) loaded_bytes_ -= footprint;
  if (record->use == Use::kWanted) use_.wanted_bytes -= footprint;
  record->use = use;
  if (use == Use::kWanted) use_.wanted_bytes += footprint;
  if (in_memory) Link(record);
}

// What only was cached is reserved next, and what is read or wanted last is used last.
void SegmentTable::Link(Record* record) {
  List& list = ListOf(*record);
  record->use == Use::kCached ? list.AddOldest(record) : list.AddYoungest(record);
  if (record->use == Use::kLoaded) loaded_bytes_ += FootprintOf(*record);
}

void SegmentTable::Asked(Record* record) {
  const bool in_memory = !record->blocks.empty();
  if (in_memory && record->use == Use::kCached) return;
  if (record->use != Use::kWanted) Restart(record->head.id);
  // Peers go through the same list, so that what was loaded first is done with first.
  if (in_memory && record->use == Use::kLoaded) return;
  use_.read_ahead_hits += std::exchange(record->ahead, false) ? 1 : 0;
  SetUse(record, Use::kLoaded);
}

// Who loads the first of a list anew, once it was gone through, goes through it again.
void SegmentTable::Restart(PayloadId id) {
  for (auto& [step, plan] : plans_) {
    const bool ended = plan.next == plan.ids.size() && plan.next > 0;
    if (ended && plan.ids.front() == id) plan.next = 1;
  }
}

absl::Status SegmentTable::Open(absl::Span<const PayloadId> ids, Parts parts,
                                std::vector<PayloadView>* out) {
  std::vector<PayloadParts> wanted;
  wanted.reserve(ids.size());
  for (const PayloadId id : ids) wanted.push_back({id, parts});
  std::vector<PayloadView> views;
  std::vector<Missing> missing;
  if (auto status = Look(wanted, Why::kToSee, &views, &missing); !status.ok()) return status;
  if (!missing.empty()) {
    return absl::UnavailableError(
        absl::StrCat("payload ", absl::Hex(missing[0].record.payload.value), " is not in memory"));
  }
  out->insert(out->end(), std::make_move_iterator(views.begin()),
              std::make_move_iterator(views.end()));
  return absl::OkStatus();
}

absl::Status SegmentTable::Look(absl::Span<const PayloadParts> wanted, Why why,
                                std::vector<PayloadView>* views, std::vector<Missing>* missing) {
  missing->clear();
  views->clear();  // outside the lock: they may be the last references
  views->resize(wanted.size());
  PayloadId dead;
  {
    MutexLock lock(&mutex_);
    const auto look = [&](Record* record, size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (record->blocks.empty()) {
        missing->push_back({index, Describe(*record)});
      } else {
        (*views)[index].Hold(record->part, record->blocks);
      }
      if (why == Why::kToLoad) Asked(record);
    };
    for (size_t i = 0; i < wanted.size(); ++i) {
      Record* const record = FindPayload(wanted[i].id);
      if (record == nullptr) {
        dead = wanted[i].id;
        break;
      }
      Record* const cold = record->other;
      (*views)[i] = PayloadView(record->head.bytes, cold != nullptr ? cold->head.bytes : 0,
                                record->head.header_bytes);
      look(record, i);
      if (cold != nullptr && wanted[i].parts == Parts::kAll) look(cold, i);
      if (i + 1 == wanted.size()) return absl::OkStatus();
    }
  }
  if (wanted.empty()) return absl::OkStatus();
  views->clear();
  missing->clear();
  return MissingStatus(dead);
}

std::optional<BlockList> SegmentTable::Install(PayloadId id, BlockList blocks, bool ahead) {
  MutexLock lock(&mutex_);
  Record* const record = Find(id);
  if (record == nullptr) return std::nullopt;
  if (record->blocks.empty()) {
    record->blocks = std::move(blocks);
    record->ahead = ahead && record->use == Use::kWanted;  // else somebody asked meanwhile
    CountResident(*record, true);
    ++use_.reads_back;
    use_.read_back_bytes += record->head.bytes;
    use_.read_ahead += ahead ? 1 : 0;
    Link(record);
  }
  return record->blocks;
}

std::vector<RecordHead> SegmentTable::AheadOf(absl::Span<const PayloadId> ids) {
  std::vector<RecordHead> heads;
  MutexLock lock(&mutex_);
  for (const PayloadId id : ids) {
    const Record* const record = FindPayload(id);
    if (record == nullptr || record->use != Use::kWanted || !record->blocks.empty()) continue;
    heads.push_back(record->head);
  }
  return heads;
}

bool SegmentTable::Holds(PayloadId id) {
  MutexLock lock(&mutex_);
  return Find(id) != nullptr;
}

std::vector<LiveRecord> SegmentTable::LiveAfter(PayloadId* after, size_t most) const {
  std::vector<LiveRecord> live;
  MutexLock lock(&mutex_);
  // An id begins with its segment's number and its offset, so that places are in the order of ids.
  for (auto segment = segments_.lower_bound(PlaceOf(*after).segment); segment != segments_.end();
       ++segment) {
    const auto& records = segment->second.records;
    auto record = std::partition_point(records.begin(), records.end(), [after](const Record& r) {
      return r.head.id.value <= after->value;
    });
    for (; record != records.end(); ++record) {
      if (most-- == 0) return live;
      *after = record->head.id;
      const bool nobodys = record->part == Part::kCold && record->other == nullptr;
      if (record->live && !nobodys) live.push_back(Describe(*record));
    }
  }
  *after = PayloadId(UINT64_MAX);
  return live;
}

absl::StatusOr<SegmentFile> SegmentTable::FileOf(uint32_t number) const {
  MutexLock lock(&mutex_);
  const auto segment = segments_.find(number);
  if (segment == segments_.end()) {
    return absl::NotFoundError(absl::StrCat("segment ", number, " is gone"));
  }
  return SegmentFile{segment->second.path, segment->second.file, segment->second.file_bytes};
}

void SegmentTable::SetFile(uint32_t number, io::FileRef file) {
  std::vector<io::FileRef> closed;
  MutexLock lock(&mutex_);
  const auto segment = segments_.find(number);
  if (segment == segments_.end() || segment->second.file != nullptr) return;
  segment->second.file = std::move(file);
  closed = AddFile(number);
}

void SegmentTable::DropFile(uint32_t number) {
  io::FileRef closed;
  MutexLock lock(&mutex_);
  const auto segment = segments_.find(number);
  if (segment == segments_.end() || segment->second.state == State::kOpen) return;
  closed = std::move(segment->second.file);
  std::erase(files_, number);
}

// --- memory ---

void SegmentTable::TakeOut(Record* record, std::vector<Block*>* blocks) {
  SetUse(record, Use::kCached);
  ListOf(*record).Remove(record);
  for (BlockRef& block : record->blocks) blocks->push_back(block.Release());
  record->blocks.clear();
  CountResident(*record, false);
}

void SegmentTable::GiveUp(Record* record, std::vector<Block*>* blocks) {
  record->blocks.empty() ? SetUse(record, Use::kCached) : TakeOut(record, blocks);
}

uint64_t SegmentTable::EvictFrom(List* list, From from, uint64_t bytes,
                                 std::vector<Block*>* blocks) {
  uint64_t freed = 0;
  Record* next = from == From::kOldest ? list->oldest : list->youngest;
  while (next != nullptr && freed < bytes) {
    Record* const record = next;
    next = from == From::kOldest ? record->younger : record->older;
    const bool held = std::any_of(record->blocks.begin(), record->blocks.end(),
                                  [](const BlockRef& block) { return !block->unshared(); });
    if (held) continue;
    freed += FootprintOf(*record);
    ++use_.evictions;
    use_.evicted_bytes += FootprintOf(*record);
    TakeOut(record, blocks);
  }
  return freed;
}

uint64_t SegmentTable::Evict(uint64_t bytes, bool reading) {
  std::vector<Block*> blocks;
  uint64_t freed;
  {
    MutexLock lock(&mutex_);
    const uint64_t excess = loaded_bytes_ - std::min(loaded_bytes_, want_bytes_max_);
    freed = EvictFrom(&loaded_, From::kOldest, std::min(bytes, excess), &blocks);
    const auto give_up = [&](List* list, From from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (freed < bytes) freed += EvictFrom(list, from, bytes - freed, &blocks);
    };
    give_up(&cold_, From::kYoungest);
    give_up(&cached_, From::kYoungest);
    give_up(&loaded_, From::kOldest);
    // What is read now goes before what is read later.
    if (reading) give_up(&wanted_, From::kYoungest);
  }
  Block::UnrefAll(blocks);
  return freed;
}

void SegmentTable::Kill(Record* record, uint64_t now_ms, std::vector<Block*>* blocks) {
  Record* const other = std::exchange(record->other, nullptr);
  KillPart(record, now_ms, blocks);  // it may be no more
  if (other == nullptr) return;
  other->other = nullptr;
  KillPart(other, now_ms, blocks);
}

void SegmentTable::KillPart(Record* record, uint64_t now_ms, std::vector<Block*>* blocks) {
  GiveUp(record, blocks);
  record->live = false;
  payloads_ -= record->part == Part::kHot ? 1 : 0;
  payload_bytes_ -= record->head.bytes;
  Segment& segment = segments_.at(PlaceOf(record->head.id).segment);
  segment.live_bytes -= RecordBytes(record->head.bytes);
  if (--segment.live > 0 || segment.state != State::kClosed) return;
  segment.state = State::kDead;
  segment.dead_since_ms = now_ms;
  segment.records.clear();
}

void SegmentTable::Free(absl::Span<const PayloadId> ids, uint64_t now_ms) {
  std::vector<Block*> blocks;
  {
    MutexLock lock(&mutex_);
    for (const PayloadId id : ids) {
      if (Record* const record = Find(id); record != nullptr) Kill(record, now_ms, &blocks);
    }
  }
  Block::UnrefAll(blocks);
}

// --- the window ---

void SegmentTable::Want(StepId step, std::vector<PayloadId> ids) {
  EndPlan(step);
  if (ids.empty()) return;
  MutexLock lock(&mutex_);
  plans_[step].ids = std::move(ids);
}

void SegmentTable::EndPlan(StepId step) {
  Plan ended;
  {
    MutexLock lock(&mutex_);
    const auto plan = plans_.find(step);
    if (plan == plans_.end()) return;
    ended = std::move(plan->second);
    plans_.erase(plan);
  }
  for (size_t at = 0; at < ended.next; at += kLooksAtOnce) {
    MutexLock lock(&mutex_);
    for (size_t i = at; i < std::min(at + kLooksAtOnce, ended.next); ++i) {
      Record* const record = FindPayload(ended.ids[i]);
      if (record != nullptr && record->use == Use::kWanted) SetUse(record, Use::kCached);
    }
  }
}

bool SegmentTable::TakeNext(Plan* plan, Batch* batch) {
  Record* const record = FindPayload(plan->ids[plan->next]);
  const bool wants = record != nullptr && record->use != Use::kWanted &&
                     FootprintOf(*record) <= want_bytes_max_;  // else it is loaded when asked for
  if (wants) {
    const uint64_t footprint = FootprintOf(*record);
    if (use_.wanted_bytes + footprint > want_bytes_max_) return false;
    SetUse(record, Use::kWanted);
    if (record->blocks.empty()) {
      batch->read.push_back(record->head.id);
      batch->bytes += footprint;
    }
  }
  ++plan->next;
  return true;
}

// False if the batch is full, or nothing more comes into the window.
bool SegmentTable::TakeSome(Batch* batch) {
  MutexLock lock(&mutex_);
  size_t looks = 0;
  for (auto& [step, plan] : plans_) {
    while (plan.next < plan.ids.size()) {
      if (batch->bytes >= batch->bytes_max) return false;
      if (looks++ == kLooksAtOnce) return true;
      if (!TakeNext(&plan, batch)) return false;
    }
  }
  return false;
}

std::vector<PayloadId> SegmentTable::TakeReadAhead(uint64_t batch_bytes) {
  {
    MutexLock lock(&mutex_);
    if (use_.wanted_bytes + batch_bytes > want_bytes_max_) return {};
  }
  Batch batch{.bytes_max = batch_bytes};
  while (TakeSome(&batch)) {
  }
  return std::move(batch.read);
}

void SegmentTable::Cool(absl::Span<const PayloadId> ids) {
  std::vector<Block*> blocks;
  {
    MutexLock lock(&mutex_);
    for (const PayloadId id : ids) {
      Record* const record = FindPayload(id);
      if (record == nullptr) continue;
      GiveUp(record, &blocks);
      if (record->other != nullptr) GiveUp(record->other, &blocks);
    }
  }
  Block::UnrefAll(blocks);
}

// --- garbage ---

std::vector<std::pair<uint32_t, std::string>> SegmentTable::TakeDead(uint64_t now_ms,
                                                                     uint64_t grace_ms) {
  std::vector<std::pair<uint32_t, std::string>> dead;
  MutexLock lock(&mutex_);
  for (auto& [number, segment] : segments_) {
    // The newest stays, so that its name says which numbers were given away.
    if (segment.state != State::kDead || number == newest_) continue;
    if (segment.dead_since_ms > 0 && now_ms < segment.dead_since_ms + grace_ms) continue;
    segment.state = State::kUnlinking;
    dead.emplace_back(number, segment.path);
  }
  return dead;
}

void SegmentTable::Forget(uint32_t number) {
  io::FileRef closed;
  MutexLock lock(&mutex_);
  const auto segment = segments_.find(number);
  if (segment == segments_.end()) return;
  closed = std::move(segment->second.file);
  segments_.erase(segment);
  std::erase(files_, number);
  ++use_.unlinked;
}

void SegmentTable::KeepDead(uint32_t number, uint64_t now_ms) {
  MutexLock lock(&mutex_);
  Segment& segment = segments_.at(number);
  segment.state = State::kDead;
  segment.dead_since_ms = now_ms;
}

std::vector<SegmentInUse> SegmentTable::InUse() const {
  std::vector<SegmentInUse> in_use;
  MutexLock lock(&mutex_);
  for (const auto& [number, segment] : segments_) {
    if (segment.state != State::kOpen && segment.state != State::kClosed) continue;
    in_use.push_back({number, segment.path, segment.part, segment.live, segment.live_bytes});
  }
  return in_use;
}

PayloadUse SegmentTable::use() const {
  PayloadUse use;
  use.budget = budget_->use();
  MutexLock lock(&mutex_);
  use.payloads = payloads_;
  use.payload_bytes = payload_bytes_;
  return use;
}

uint64_t SegmentTable::GivesWayBytes() const {
  MutexLock lock(&mutex_);
  return use_.resident_bytes - std::min(use_.resident_bytes, use_.wanted_bytes);
}

void SegmentTable::AddUse(StoreUse* use) const {
  MutexLock lock(&mutex_);
  for (const auto& [number, segment] : segments_) {
    use->file_bytes += segment.file_bytes;
    use->live_bytes += segment.live_bytes;
    if (segment.part == Part::kCold) use->cold_live_bytes += segment.live_bytes;
    if (segment.state == State::kOpen) {
      ++use->segments_open;
    } else if (segment.state == State::kClosed) {
      ++use->segments_sealed;
      const uint64_t dead = segment.file_bytes - std::min(segment.file_bytes, segment.live_bytes);
      if (dead > segment.live_bytes) use->pinned_bytes += dead;
    } else {
      ++use->segments_dead;
    }
  }
  use->resident_bytes = use_.resident_bytes;
  use->cold_resident_bytes = use_.cold_resident_bytes;
  use->wanted_bytes = use_.wanted_bytes;
  use->evictions = use_.evictions;
  use->evicted_bytes = use_.evicted_bytes;
  use->unlinked = use_.unlinked;
  use->reads_back = use_.reads_back;
  use->read_back_bytes = use_.read_back_bytes;
  use->read_ahead = use_.read_ahead;
  use->read_ahead_hits = use_.read_ahead_hits;
}

}  // namespace forebay::storage
