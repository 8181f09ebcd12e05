#include "tests/simulation/payload_disk.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/prng.h"

namespace forebay::simulation {

std::optional<storage::SegmentName> SegmentNameOf(const std::string& path) {
  return storage::ParseSegmentFileName(std::string_view(path).substr(path.rfind('/') + 1));
}

namespace {

using What = io::Fault::What;

constexpr uint64_t kTickMs = 50;
// Of an operation. Slower than this, with writes as small as these, it falls behind for good what
// many actors push.
constexpr uint64_t kDelayMs = 20;
constexpr uint64_t kPlenty = uint64_t{1} << 40;
constexpr uint64_t kHeaderBytes = 7;

}  // namespace

PayloadDisk::PayloadDisk(const HistoryOptions& options, EventQueue* queue, Dice* dice, Stats* stats,
                         Observer* observer, Alarm alarm, Lost lost)
    : options_(options),
      queue_(*queue),
      dice_(*dice),
      stats_(*stats),
      observer_(observer),
      alarm_(std::move(alarm)),
      lost_(std::move(lost)) {
  Begin();
  Restart(io::MemoryDisk::CrashKind::kProcess, {});
}

PayloadDisk::~PayloadDisk() {
  life_ = nullptr;
  store_ = nullptr;
  disk_->Crash(io::MemoryDisk::CrashKind::kProcess);
}

void PayloadDisk::Begin() {
  life_ = std::make_shared<int>();
  read_flips_ = false;
  volume_->bytes_max = kPlenty;
  const uint64_t process = ++incarnation_;
  disk_ = std::make_unique<io::MemoryDisk>(
      volume_,
      io::VirtualTime{.now_ms = [this] { return queue_.now_ms() + recovery_.now_ms(); },
                      .after =
                          [this](uint64_t delay_ms, std::function<void()> work) {
                            if (recovering_)
                              return recovery_.time().after(delay_ms, std::move(work));
                            queue_.After(delay_ms, [this, work = std::move(work)] {
                              queue_.Idle();
                              work();
                            });
                          }},
      io::MemoryDiskOptions{
          .seed = dice_.Next(),
          .delay_most_ms = std::min(options_.sync_ms_max, kDelayMs),
          .watch = [this, process](const io::MemoryAccess& access) { Watch(process, access); }});
  const uint64_t page = 4096;
  storage::SegmentStoreOptions store;
  store.directory = "/store";
  store.cluster = "simulation";
  store.incarnation = options_.one_incarnation ? 1 : process;
  store.seed = dice_.Next();
  store.bytes_max = options_.store_memory_bytes;
  store.completion_reserve_bytes = store.bytes_max / 10;
  store.want_bytes_max = store.bytes_max / 4;
  store.segment_bytes = options_.segment_bytes;
  store.lanes = static_cast<uint32_t>(dice_.Between(1, 4));
  store.write_bytes_max = dice_.Between(16, 64) * page;
  store.read_bytes_max = dice_.Between(1, 8) * page;
  store.gc_grace_ms = dice_.Below(5'000);
  store.write_deadline_ms = dice_.Between(1'000, 10'000);
  store.gather_ms = dice_.Below(5);
  store.mutations = options_.mutations;
  store.now_ms = [this] { return queue_.now_ms() + recovery_.now_ms(); };
  store.after = [this](uint64_t delay_ms, std::function<void()> work) {
    Later(delay_ms, std::move(work));
  };
  store_ = std::make_unique<storage::SegmentStore>(disk_.get(), store);
}

void PayloadDisk::Later(uint64_t delay_ms, std::function<void()> work) {
  queue_.After(delay_ms, [this, life = Life(life_), work = std::move(work)] {
    queue_.Idle();
    if (!life.expired()) work();
  });
}

void PayloadDisk::Tick() {
  store_->Tick();
  Later(kTickMs, [this] { Tick(); });
}

void PayloadDisk::Watch(uint64_t process, const io::MemoryAccess& access) {
  const bool created =
      access.operation == io::MemoryOperation::kOpen && access.mode == io::OpenMode::kCreate;
  const auto name = SegmentNameOf(access.path);
  if (created && name) paths_[name->number] = access.path;
  observer_->OnStoreAccess(process, access);
}

// As the bytes say it, not the store: the hot record names the cold one.
std::vector<PayloadDisk::Extent> PayloadDisk::ExtentsOf(PayloadId place) {
  std::vector<Extent> extents;
  const auto hot = AddExtent(place, &extents);
  if (hot && hot->cold != PayloadId()) AddExtent(hot->cold, &extents);
  return extents;
}

std::optional<storage::RecordHead> PayloadDisk::AddExtent(PayloadId place,
                                                          std::vector<Extent>* extents) {
  const storage::PayloadPlace at = storage::PlaceOf(place);
  const std::string& path = paths_[at.segment];
  const auto inode = volume_->Find(path);
  if (!inode) {
    alarm_(absl::StrCat("segment ", at.segment, " has a payload, and no file"));
    return std::nullopt;
  }
  std::string bytes = volume_->contents(*inode).substr(at.offset, storage::kRecordHeadBytes);
  // A bit may have been flipped before the payload was acknowledged.
  for (const Flip& flip : flips_) {
    if (flip.path != path || flip.offset - at.offset >= bytes.size()) continue;
    bytes[flip.offset - at.offset] ^= static_cast<char>(1 << flip.bit);
  }
  const auto head = storage::DecodeRecordHead(bytes);
  if (!head.ok()) {
    alarm_(absl::StrCat(path, " at ", at.offset, ": ", head.status().ToString()));
    return std::nullopt;
  }
  extents->push_back({path, at.offset, at.offset + storage::kRecordHeadBytes + head->bytes});
  return *head;
}

void PayloadDisk::Stored(PayloadId id, PayloadId place) {
  places_[id] = place;
  std::vector<Extent>& extents = extents_[id] = ExtentsOf(place);
  std::vector<std::string> paths;
  for (const Extent& extent : extents) paths.push_back(extent.path);
  observer_->OnPayloadStored(id, paths);
}

// --- bytes ---

std::string PayloadDisk::BytesOf(PayloadId id) {
  std::string bytes = absl::StrCat("payload ", id.value, " ");
  bytes.resize(bytes.size() + Mix64(id.value) % 3'000, static_cast<char>('a' + id.value % 26));
  return bytes;
}

// Every third has a cold part.
uint64_t PayloadDisk::ColdBytesOf(PayloadId id) {
  const uint64_t bytes = BytesOf(id).size() - kHeaderBytes;
  return id.value % 3 == 0 ? bytes - bytes / 4 : 0;
}

void PayloadDisk::Write(const std::vector<PayloadId>& ids, std::function<void()> done) {
  writing_.insert(ids.begin(), ids.end());
  uint64_t footprint = 0;
  for (const PayloadId id : ids) {
    const uint64_t cold = ColdBytesOf(id);
    footprint += storage::PayloadBuilder::Footprint(BytesOf(id).size() - cold, cold);
  }
  auto shared = std::make_shared<std::function<void()>>(std::move(done));
  FOREBAY_CHECK(store_->budget().CanEverFit(footprint));
  store_->budget().Await(footprint, 0, [this, life = Life(life_), ids, shared] {
    if (life.expired()) return;
    Put(ids, shared);
  });
}

void PayloadDisk::Put(const std::vector<PayloadId>& ids,
                      std::shared_ptr<std::function<void()>> done) {
  std::vector<storage::PayloadBuilder> builders;
  for (const PayloadId id : ids) {
    const std::string bytes = BytesOf(id);
    const uint64_t cold = ColdBytesOf(id);
    storage::PayloadBuilder& builder =
        builders.emplace_back(&store_->budget(), bytes.size() - cold, cold);
    builder.AppendHeader(std::string_view(bytes).substr(0, kHeaderBytes));
    builder.Append(std::string_view(bytes).substr(kHeaderBytes), 0);
  }
  auto places = std::make_shared<std::vector<PayloadId>>(ids.size());
  store_->Finish(absl::MakeSpan(builders), absl::MakeSpan(*places),
                 [this, life = Life(life_), ids, places, done](const absl::Status& status) {
                   if (life.expired()) return;
                   if (!status.ok())
                     return alarm_(absl::StrCat("a write ends: ", status.ToString()));
                   for (size_t i = 0; i < ids.size(); ++i) {
                     Stored(ids[i], (*places)[i]);
                   }
                   Later(0, [this, ids, done] {
                     for (const PayloadId id : ids) writing_.erase(id);
                     (*done)();
                   });
                 });
}

void PayloadDisk::Check(PayloadId id, storage::Parts parts, const storage::PayloadView& view) {
  std::vector<storage::BlockSlice> slices;
  std::string bytes;
  const uint64_t loaded =
      parts == storage::Parts::kAll ? view.bytes() : view.bytes(storage::Part::kHot);
  if (const auto status = view.Slices(0, loaded, &slices); !status.ok())
    return alarm_(status.ToString());
  for (const storage::BlockSlice& slice : slices) bytes.append(slice.data, slice.size);
  const std::string written = BytesOf(id);
  if (view.bytes() != written.size() || bytes != written.substr(0, loaded))
    alarm_(absl::StrCat("payload ", id.value, " has other bytes"));
}

void PayloadDisk::Read(std::vector<PayloadId> ids, std::function<void(absl::Status)> done) {
  if (ids.empty()) return Later(0, [done = std::move(done)] { done(absl::OkStatus()); });
  const PayloadId id = ids.back();
  ids.pop_back();
  const auto place = places_.find(id);
  if (place == places_.end())
    return Later(0, [done = std::move(done)] { done(absl::NotFoundError("freed")); });
  const auto parts = dice_.OneIn(2) ? storage::Parts::kAll : storage::Parts::kHot;
  // It may be freed while it is read.
  store_->Load({place->second}, parts,
               [this, life = Life(life_), id, parts, extents = extents_[id], ids = std::move(ids),
                done = std::move(done)](absl::StatusOr<std::vector<storage::PayloadView>> views) {
                 if (life.expired()) return;
                 if (absl::IsDataLoss(views.status())) {
                   NoteLost(id, extents, views.status().ToString());
                 }
                 if (!views.ok())
                   return Later(0, [done, status = views.status()] { done(status); });
                 Check(id, parts, views->front());
                 Later(0, [this, ids, done] { Read(ids, done); });
               });
}

void PayloadDisk::Free(PayloadId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  store_->Free({&place->second, 1});
  places_.erase(place);
  extents_.erase(id);
}

void PayloadDisk::Cool(PayloadId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  if (options_.free_cold) return store_->Free({&place->second, 1});
  store_->Cool({&place->second, 1});
}

// --- ends ---

void PayloadDisk::Restart(io::MemoryDisk::CrashKind kind, const std::vector<PayloadId>& live) {
  life_ = nullptr;
  store_ = nullptr;
  disk_->Crash(kind);
  disk_ = nullptr;
  writing_.clear();
  ++troubles_;
  recovering_ = true;
  Begin();
  std::vector<PayloadId> places;
  std::map<PayloadId, PayloadId> kept, ids;
  for (const PayloadId id : live) {
    const auto place = places_.find(id);
    if (place == places_.end()) {
      alarm_(absl::StrCat("payload ", id.value, " is named, and was never written to the end"));
      continue;
    }
    places.push_back(place->second);
    kept.insert(*place);
    ids[place->second] = id;
  }
  places_ = std::move(kept);
  std::erase_if(extents_, [this](const auto& entry) { return !places_.contains(entry.first); });
  bool answered = false;
  store_->Recover(places, [&](absl::StatusOr<storage::StoreRecovery> found) {
    answered = true;
    if (!found.ok()) return alarm_(found.status().ToString());
    for (const storage::LostPayload& lost : found->lost) {
      NoteLost(ids.at(lost.id), extents_[ids.at(lost.id)], lost.why);
    }
  });
  recovery_.RunAll();
  recovering_ = false;
  if (!answered) alarm_("the store does not recover");
  Tick();
}

// --- trouble ---

void PayloadDisk::Trouble() {
  stats_.Count(Fault::kStoreTrouble);
  switch (dice_.Below(6)) {
    case 0:
      disk_->Hang();
      break;
    case 1:
      volume_->bytes_max = volume_->used_bytes() + dice_.Below(100'000);
      break;
    case 2:
      disk_->Inject({.what = dice_.OneIn(2) ? What::kFail : What::kFailButHappened,
                     .skip = dice_.Below(20),
                     .times = dice_.Between(1, 10),
                     .error = EIO});
      break;
    case 3:
      for (uint64_t flips = dice_.Between(10, 80); flips > 0; --flips) FlipStoredBit();
      break;
    case 4:
      // One at a time: what is read again must be well then.
      if (read_flips_) break;
      read_flips_ = true;
      stats_.Count(Fault::kReadFlip);
      disk_->Inject({.what = What::kFlipBit,
                     .operation = io::MemoryOperation::kRead,
                     .skip = dice_.Below(5)});
      break;
    default:
      disk_->Inject(
          {.what = What::kDelay, .times = UINT64_MAX, .delay_ms = dice_.Between(10, 4'000)});
  }
  queue_.After(dice_.Between(100, 15'000), [this, trouble = ++troubles_] {
    queue_.Idle();
    if (trouble == troubles_) Heal();
  });
}

// Mostly of a record, or of anything before it in its file.
void PayloadDisk::FlipStoredBit() {
  if (extents_.empty()) return;
  const auto payload =
      std::next(extents_.begin(), static_cast<std::ptrdiff_t>(dice_.Below(extents_.size())));
  if (payload->second.empty()) return;
  const Extent& extent = payload->second[dice_.Below(payload->second.size())];
  const Flip flip{extent.path, dice_.Between(dice_.OneIn(4) ? 0 : extent.begin, extent.end - 1),
                  static_cast<uint32_t>(dice_.Below(8))};
  if (!volume_->Find(flip.path)) return;  // it was lost with all else in its file
  stats_.Count(Fault::kStoreFlip);
  disk_->FlipStoredBit(flip.path, flip.offset, flip.bit);
  flips_.push_back(flip);
}

bool PayloadDisk::Hurt(const std::vector<Extent>& extents) const {
  for (const Extent& extent : extents) {
    for (const Flip& flip : flips_) {
      if (flip.path != extent.path) continue;
      if (flip.offset < storage::kSegmentPage) return true;
      if (flip.offset >= extent.begin && flip.offset < extent.end) return true;
    }
  }
  return false;
}

void PayloadDisk::NoteLost(PayloadId id, const std::vector<Extent>& extents,
                           const std::string& why) {
  if (!Hurt(extents)) {
    return alarm_(absl::StrCat("payload ", id.value, " is lost, and no bit of it flipped: ", why));
  }
  stats_.Count(Fault::kStoreLost);
  observer_->OnPayloadLost(id);
  lost_(id);
}

void PayloadDisk::Heal() {
  read_flips_ = false;
  volume_->bytes_max = kPlenty;
  disk_->Heal();
}

}  // namespace forebay::simulation
