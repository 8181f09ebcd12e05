#include "storage/segment_reader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::storage {
namespace {

absl::Status Closed() { return absl::UnavailableError("the segment store is closed"); }

bool SaysGone(const absl::Status& status) {
  const int error = io::ErrorOf(status);
  return error == ENOENT || error == ESTALE;
}

// Nothing is known to be lost: whoever asks again later may get it.
absl::Status Unreadable(const absl::Status& why) {
  absl::Status status(absl::StatusCode::kUnavailable, why.message());
  why.ForEachPayload([&status](absl::string_view url, const absl::Cord& payload) {
    status.SetPayload(url, payload);
  });
  return status;
}

}  // namespace

SegmentReader::SegmentReader(io::Disk* disk, const SegmentStoreOptions& options,
                             std::shared_ptr<SegmentTable> table,
                             std::shared_ptr<SegmentPresence> presence)
    : disk_(disk),
      options_(options),
      ahead_bytes_max_(std::min(options.ahead_bytes_max, options.want_bytes_max / 3)),
      table_(std::move(table)),
      presence_(std::move(presence)) {
  FOREBAY_CHECK(options.reads_max > 0 && options.read_bytes_max >= kSegmentPage &&
                options.read_bytes_max % kSegmentPage == 0);
  // Between two blocks there is at most one part of the buffer.
  FOREBAY_CHECK((options.read_bytes_max / Block::kPagedBytes + 2) * 2 + 1 <= io::Disk::kPiecesMax);
}

void SegmentReader::Run(Actions actions) {
  for (auto& action : actions) action();
}

// --- a job's way to memory ---

void SegmentReader::Load(std::vector<PayloadParts> wanted, PayloadStore::LoadDone done) {
  auto job = std::make_shared<Job>();
  job->wanted = std::move(wanted);
  job->done = std::move(done);
  {
    MutexLock lock(&mutex_);
    jobs_.insert(job);
  }
  Begin(job, 0);
}

void SegmentReader::Begin(const JobRef& job, uint64_t reserved) {
  PayloadBudget& budget = table_->budget();
  std::vector<PayloadView> views;
  std::vector<SegmentTable::Missing> missing;
  // Outside the lock: views may be last references.
  if (auto status = table_->Look(job->wanted, SegmentTable::Why::kToLoad, &views, &missing);
      !status.ok()) {
    budget.Unreserve(reserved);
    return Refuse(job, std::move(status));
  }
  uint64_t all = 0;
  for (const PayloadView& view : views) all += view.footprint();
  for (const auto& part : missing) all += PayloadBuilder::Footprint(part.record.head.bytes);
  const bool again = reserved > 0;
  Actions actions;
  if (StartJob(job, &views, missing, &reserved, &actions)) {
    budget.Unreserve(reserved);
    return Run(std::move(actions));
  }
  // Nothing is held while it waits. The second time for all of it: then it is enough for sure.
  views.clear();
  const uint64_t need = again ? all : reserved;
  if (again) budget.Unreserve(reserved);
  if (!budget.CanEverRead(all)) {
    return Refuse(job, absl::ResourceExhaustedError(
                           absl::StrCat("a load of ", all, " bytes exceeds the payload memory of ",
                                        budget.use().bytes_max)));
  }
  Reserve(job, need);
}

// False if `reserved` is not enough; if nothing was reserved, it is then what is needed.
bool SegmentReader::StartJob(const JobRef& job, std::vector<PayloadView>* views,
                             const std::vector<SegmentTable::Missing>& missing, uint64_t* reserved,
                             Actions* actions) {
  MutexLock lock(&mutex_);
  if (closed_) {
    job->status = Closed();
    Answer(job, actions);
    return true;
  }
  std::map<PayloadId, LiveRecord> read;
  std::vector<PayloadId> being_read;
  uint64_t need = 0;
  for (const auto& [index, record] : missing) {
    if (loading_.contains(record.head.id)) {
      being_read.push_back(record.head.id);
      continue;
    }
    if (!read.emplace(record.head.id, record).second) continue;
    need += PayloadBuilder::Footprint(record.head.bytes);
  }
  if (need > *reserved) {
    if (*reserved == 0) *reserved = need;
    return false;
  }
  *reserved -= need;
  job->views = std::move(*views);
  job->left = missing.size();
  for (const auto& [index, record] : missing) {
    loading_[record.head.id].push_back({job, index, record.part});
  }
  QueueRuns(read, job->done == nullptr);
  if (job->done != nullptr) Promote(being_read);
  if (job->left == 0) Answer(job, actions);
  Pump(actions);
  return true;
}

void SegmentReader::Reserve(const JobRef& job, uint64_t bytes) {
  const WaiterId waiter = table_->budget().AwaitRead(
      bytes, [self = shared_from_this(), job, bytes] { self->Begin(job, bytes); });
  bool closed;
  {
    MutexLock lock(&mutex_);
    job->waiter = waiter;
    closed = closed_;
  }
  if (closed) table_->budget().Cancel(waiter);
}

void SegmentReader::Answer(const JobRef& job, Actions* actions) {
  if (jobs_.erase(job) == 0) return;
  if (job->done == nullptr) {
    --ahead_jobs_;
    if (!job->stalled) actions->push_back([self = shared_from_this()] { self->ReadAhead(); });
    return;
  }
  actions->push_back([self = shared_from_this(), job] {
    if (job->status.ok()) {
      job->done(std::move(job->views));
    } else {
      job->views.clear();
      job->done(job->status);
    }
    self->ReadAhead();  // what is loaded has left the window
  });
}

void SegmentReader::Refuse(const JobRef& job, absl::Status status) {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    job->status = std::move(status);
    Answer(job, &actions);
  }
  Run(std::move(actions));
}

// --- runs ---

// By id, hence by place.
void SegmentReader::QueueRuns(const std::map<PayloadId, LiveRecord>& records, bool ahead) {
  std::vector<RunItem> items;
  uint64_t begin = 0, end = 0;
  const auto flush = [&] {
    if (!items.empty()) QueueRun(std::make_shared<SegmentRun>(std::exchange(items, {}), ahead));
  };
  for (const auto& [id, record] : records) {
    const RecordHead& head = record.head;
    const PayloadPlace place = PlaceOf(id);
    const uint64_t place_end = place.offset + RecordBytes(head.bytes);
    const bool joins = !items.empty() && PlaceOf(items.back().head.id).segment == place.segment &&
                       place.offset <= end + options_.read_gap_bytes_max &&
                       place_end - begin <= options_.read_bytes_max - kSegmentPage;
    if (!joins) {
      flush();
      begin = place.offset;
    }
    end = place_end;
    RunItem& item = items.emplace_back();
    item.head = head;
    item.payload = record.payload;
    item.blocks = NewBlocks(head.bytes, &table_->budget());
  }
  flush();
}

void SegmentReader::QueueRun(const RunRef& run) {
  auto& queue = run->ahead ? ahead_queue_ : queue_;
  const uint64_t end = run->end();
  for (uint64_t at = run->begin(); at < end; at += options_.read_bytes_max) {
    auto read = std::make_shared<Read>();
    read->run = run;
    read->begin = at;
    read->end = std::min(at + options_.read_bytes_max, end);
    queue.push_back(std::move(read));
    ++run->pieces_left;
  }
}

// Few reads wait, so they are looked through.
void SegmentReader::Promote(const std::vector<PayloadId>& ids) {
  if (ids.empty()) return;
  const auto waited_for = [&ids](const ReadRef& read) {
    const std::vector<RunItem>& items = read->run->items;  // by place
    return std::any_of(ids.begin(), ids.end(), [&items](PayloadId id) {
      return id >= items.front().head.id && id <= items.back().head.id;
    });
  };
  const auto rest = std::stable_partition(ahead_queue_.begin(), ahead_queue_.end(), waited_for);
  queue_.insert(queue_.end(), ahead_queue_.begin(), rest);
  ahead_queue_.erase(ahead_queue_.begin(), rest);
}

uint64_t SegmentReader::InFlightBytes() const {
  uint64_t bytes = 0;
  for (const ReadRef& read : in_flight_) bytes += read->end - read->begin;
  return bytes;
}

SegmentReader::ReadRef SegmentReader::NextRead() {
  auto& queue = queue_.empty() ? ahead_queue_ : queue_;
  if (queue.empty()) return nullptr;
  // Small reads need to be many to keep a disk busy, so that bytes are what counts. Half of what
  // may be in flight stays free for those who wait.
  const uint64_t share = queue_.empty() ? 2 : 1;
  const uint64_t bytes = queue.front()->end - queue.front()->begin;
  const bool full = in_flight_.size() >= kInFlightMax / share ||
                    InFlightBytes() + bytes > options_.reads_max * options_.read_bytes_max / share;
  if (full && !in_flight_.empty()) return nullptr;
  ReadRef read = std::move(queue.front());
  queue.pop_front();
  return read;
}

void SegmentReader::Pump(Actions* actions) {
  while (ReadRef read = NextRead()) {
    read->since_ms = now_ms();
    in_flight_.insert(read);
    auto buffer = std::make_shared<WriteBuffer>(read->run->BufferBytes(read->begin, read->end));
    actions->push_back([self = shared_from_this(), read, buffer] { self->Start(read, buffer); });
  }
}

// --- the way of a read ---

void SegmentReader::Start(const ReadRef& read, std::shared_ptr<WriteBuffer> buffer) {
  const uint32_t segment = read->run->segment();
  auto known = table_->FileOf(segment);
  if (!known.ok()) return Ended(read, buffer, known.status());
  if (known->file != nullptr) return StartIn(read, std::move(buffer), known->file);
  disk_->Open(known->path, {.mode = io::OpenMode::kRead, .direct = options_.direct},
              [self = shared_from_this(), read, buffer, segment](const auto& file) {
                if (!file.ok()) return self->Ended(read, buffer, file.status());
                self->table_->SetFile(segment, *file);
                self->StartIn(read, buffer, *file);
              });
}

void SegmentReader::StartIn(const ReadRef& read, std::shared_ptr<WriteBuffer> buffer,
                            const io::FileRef& file) {
  disk_->ReadPieces(file, read->begin, read->run->Targets(read->begin, read->end, buffer->data()),
                    [self = shared_from_this(), read, buffer](const absl::StatusOr<size_t>& bytes) {
                      self->Ended(read, buffer, bytes);
                    });
}

void SegmentReader::Ended(const ReadRef& read, const std::shared_ptr<WriteBuffer>& buffer,
                          const absl::StatusOr<size_t>& bytes) {
  SegmentRun& run = *read->run;
  if (bytes.ok()) {
    uint64_t at = read->begin;
    for (const absl::Span<char> to : run.Targets(read->begin, read->end, buffer->data())) {
      if (at >= read->begin + *bytes) break;
      run.Take(at, {to.data(), std::min<uint64_t>(to.size(), read->begin + *bytes - at)});
      at += to.size();
    }
  }
  Actions actions;
  {
    MutexLock lock(&mutex_);
    in_flight_.erase(read);
    if (bytes.ok()) {
      trouble_ = {};
    } else if (run.status.ok()) {
      run.status = bytes.status();
    }
    if (closed_) return;
    Pump(&actions);
  }
  // Before the other reads are started: those who wait for this one come first.
  if (run.pieces_left.fetch_sub(1) == 1) RunEnded(read->run);
  Run(std::move(actions));
}

void SegmentReader::RunEnded(const RunRef& run) {
  std::vector<std::pair<PayloadId, absl::StatusOr<BlockList>>> read;
  std::vector<Wrong> wrong;
  const auto file = table_->FileOf(run->segment());
  for (RunItem& item : run->items) {
    absl::Status status = run->status;
    if (!status.ok()) {
      ++item.failed;
    } else if (!options_.mutations.trust_reads && !(status = SegmentRun::Check(item)).ok()) {
      ++item.damaged;
    }
    if (status.ok()) {
      auto blocks = table_->Install(item.head.id, std::move(item.blocks), run->ahead);
      read.emplace_back(item.head.id, blocks.has_value()
                                          ? absl::StatusOr<BlockList>(std::move(*blocks))
                                          : absl::NotFoundError(absl::StrCat(
                                                "payload ", absl::Hex(item.payload.value),
                                                " was freed while it was read")));
    } else if (!file.ok()) {
      read.emplace_back(item.head.id, file.status());
    } else {
      wrong.push_back({std::move(item), std::move(status)});
    }
  }
  // What is read again is read through a new handle, and by itself.
  if (!wrong.empty()) table_->DropFile(run->segment());
  const bool probe =
      wrong.size() == 1 && wrong[0].item.failed > 1 && io::ErrorOf(wrong[0].why) == EIO;
  if (probe) Probe(std::move(wrong[0]), run->ahead, file->path);
  Actions actions;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, blocks] : read) Deliver(id, blocks, &actions);
    if (!probe) {
      for (Wrong& one : wrong) Again(std::move(one), run->ahead, file->path, &actions);
    }
    Pump(&actions);
  }
  Run(std::move(actions));
  // What was read ahead may be given up for a load that waits for memory.
  read.clear();
  table_->budget().EvictForWaiters();
}

void SegmentReader::Deliver(PayloadId id, const absl::StatusOr<BlockList>& blocks,
                            Actions* actions) {
  const auto loading = loading_.find(id);
  if (loading == loading_.end()) return;
  for (const Asker& asker : loading->second) {
    Job& job = *asker.job;
    if (blocks.ok()) {
      if (job.done != nullptr) job.views[asker.index].Hold(asker.part, *blocks);
    } else {
      job.status = JoinLost(job.status, blocks.status());
    }
    if (--job.left == 0) Answer(asker.job, actions);
  }
  loading_.erase(loading);
}

void SegmentReader::Probe(Wrong wrong, bool ahead, const std::string& path) {
  auto page = std::make_shared<WriteBuffer>(kSegmentPage);
  auto held = std::make_shared<Wrong>(std::move(wrong));
  auto ended = [self = shared_from_this(), held, ahead, path](bool well) {
    held->item.failed_alone = well ? held->item.failed_alone + 1 : 0;
    Actions actions;
    {
      MutexLock lock(&self->mutex_);
      self->Again(std::move(*held), ahead, path, &actions);
      self->Pump(&actions);
    }
    Run(std::move(actions));
  };
  disk_->Open(path, {.mode = io::OpenMode::kRead, .direct = options_.direct},
              [disk = disk_, page, ended](const absl::StatusOr<io::FileRef>& file) {
                if (!file.ok()) return ended(false);
                disk->Read(*file, 0, {page->data(), kSegmentPage},
                           [page, ended](const absl::StatusOr<size_t>& bytes) {
                             ended(bytes.ok() && *bytes == kSegmentPage);
                           });
              });
}

void SegmentReader::Again(Wrong wrong, bool ahead, const std::string& path, Actions* actions) {
  RunItem& item = wrong.item;
  const absl::Status& why = wrong.why;
  const PayloadId id = item.head.id;
  if (item.failed == 1) item.failing_since_ms = now_ms();
  const bool given_up =
      item.failed > 0 && now_ms() - item.failing_since_ms >= options_.read_patience_ms;
  const bool damaged =
      item.damaged >= kDamagedReadsMax || (given_up && item.failed_alone >= kFailedAloneMax);
  const bool gone = SaysGone(why) && presence_->IsGone(PlaceOf(id).segment);
  if (trouble_.kind.empty()) trouble_.since_ms = now_ms();
  trouble_.kind = "reading";
  trouble_.what = std::string(why.message());
  trouble_.path = path;
  if (closed_ || damaged || gone || given_up) {
    use_.damaged += damaged || gone ? 1 : 0;
    absl::Status status = Unreadable(why);
    if (damaged || gone) {
      status =
          LostStatus(item.payload, DamageText(path, item.head.id, item.payload, why.message()));
    }
    Deliver(id, status, actions);
    // The last references go outside the lock.
    actions->push_back([blocks = std::move(item.blocks)] {});
    return;
  }
  const uint64_t pause_ms =
      item.failed == 0 ? 0
                       : std::min(options_.retry_most_ms,
                                  options_.retry_least_ms << std::min<uint32_t>(item.failed, 20));
  std::vector<RunItem> items;
  items.push_back(std::move(item));
  auto run = std::make_shared<SegmentRun>(std::move(items), ahead);
  if (pause_ms == 0) return QueueRun(run);
  later_.emplace(now_ms() + pause_ms, std::move(run));
}

// --- ahead, and from outside ---

void SegmentReader::ReadAhead() {
  while (BeginAhead()) {
  }
}

bool SegmentReader::BeginAhead() {
  std::vector<PayloadId> ids;
  {
    MutexLock lock(&mutex_);
    if (closed_ || ahead_jobs_ >= kAheadJobsMax) return false;
    ++ahead_jobs_;
    ids.swap(ahead_);
  }
  if (ids.empty()) ids = table_->TakeReadAhead(ahead_bytes_max_);
  // Some may have been loaded, or freed, since they were taken.
  std::vector<SegmentTable::Missing> missing;
  uint64_t reserved = 0;
  for (const RecordHead& head : table_->AheadOf(ids)) {
    missing.push_back({.record = {.head = head, .payload = head.id}});
    reserved += PayloadBuilder::Footprint(head.bytes);
  }
  auto job = std::make_shared<Job>();
  std::vector<PayloadId> later;
  while (!missing.empty() && !table_->budget().TryReserve(reserved)) {
    for (const size_t half = missing.size() / 2; missing.size() > half; missing.pop_back()) {
      later.push_back(missing.back().record.payload);
      reserved -= PayloadBuilder::Footprint(missing.back().record.head.bytes);
    }
  }
  job->stalled = !later.empty();
  Actions actions;
  {
    MutexLock lock(&mutex_);
    ahead_.insert(ahead_.end(), later.rbegin(), later.rend());
    if (missing.empty()) --ahead_jobs_;
    if (!missing.empty()) jobs_.insert(job);
  }
  if (missing.empty()) return !ids.empty() && !job->stalled;
  std::vector<PayloadView> views;
  FOREBAY_CHECK(StartJob(job, &views, missing, &reserved, &actions));
  table_->budget().Unreserve(reserved);
  Run(std::move(actions));
  return !job->stalled;
}

void SegmentReader::Tick() {
  Actions actions;
  {
    MutexLock lock(&mutex_);
    const uint64_t now = now_ms();
    while (!later_.empty() && later_.begin()->first <= now) {
      QueueRun(later_.begin()->second);
      later_.erase(later_.begin());
    }
    Pump(&actions);
  }
  Run(std::move(actions));
  ReadAhead();
}

void SegmentReader::Close() {
  Actions actions;
  std::vector<WaiterId> waiters;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    for (const JobRef& job : std::set<JobRef>(jobs_)) {
      waiters.push_back(job->waiter);
      job->status = Closed();
      Answer(job, &actions);
    }
    // What they hold goes outside the lock.
    actions.push_back([loading = std::exchange(loading_, {}), queue = std::exchange(queue_, {}),
                       ahead = std::exchange(ahead_queue_, {}),
                       later = std::exchange(later_, {})] {});
  }
  for (const WaiterId waiter : waiters) table_->budget().Cancel(waiter);
  Run(std::move(actions));
}

StoreTrouble SegmentReader::trouble() const {
  MutexLock lock(&mutex_);
  StoreTrouble trouble = trouble_;
  for (const ReadRef& read : in_flight_) {
    const uint64_t since = now_ms() - read->since_ms;
    if (since < options_.write_deadline_ms || !trouble.kind.empty()) continue;
    trouble.kind = "reading";
    trouble.what = absl::StrCat("a read of segment ", read->run->segment(), " has not ended for ",
                                since, " ms");
    trouble.since_ms = read->since_ms;
  }
  return trouble;
}

void SegmentReader::AddUse(StoreUse* use) const {
  MutexLock lock(&mutex_);
  use->damaged += use_.damaged;
  use->buffer_bytes += InFlightBytes();
}

}  // namespace forebay::storage
