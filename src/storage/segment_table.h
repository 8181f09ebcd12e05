// What the segment store knows of its segments and payloads: where each lies, which are in memory,
// which are dead; and the budget of that memory, to which it gives up what can be read back.
//
// A segment's records lie in order of offset, so that a payload is found by its id in two steps
// and nothing big is ever rehashed. A payload's cold part is a record of its own, in a segment of
// such records; it has no other name than that of the payload, whose hot record names it.
//
// Each step has a list of what it will load. A window of want_bytes_max moves along the lists: what
// is in it, hot parts alone, is in memory or on its way there, and leaves it when it is loaded.
// Given up first is what was loaded longest ago, but for as many bytes as the window's, as a rank's
// peers load the same; then what is cold and was not loaded; then the youngest payloads, as the
// oldest are reserved next; then the rest of what was loaded. What is in the window gives way to
// loads alone, its end first; what a view holds stays.
//
// Thread-safe; its lock is held for pointer work only, and no other lock is taken under it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/sync.h"
#include "io/disk.h"
#include "storage/payload_store.h"
#include "storage/segment_format.h"
#include "storage/segment_options.h"

namespace forebay::storage {

// A part of a payload with its place, and its bytes if they are in memory.
struct StoredPart {
  RecordHead head;
  BlockList blocks;
};

struct SegmentFile {
  std::string path;
  io::FileRef file;  // null if it is not open now
  uint64_t bytes = 0;
};

// A segment that is written, or that has live payloads.
struct SegmentInUse {
  uint32_t number = 0;
  std::string path;
  Part part = Part::kHot;
  uint64_t live = 0;  // payloads that have this part here
  uint64_t live_bytes = 0;
};

// A part of a live payload.
struct LiveRecord {
  RecordHead head;
  PayloadId payload;
  Part part = Part::kHot;
};

class SegmentTable {
 public:
  explicit SegmentTable(const SegmentStoreOptions& options);
  ~SegmentTable();

  PayloadBudget& budget() { return *budget_; }

  // --- for the writer ---
  void OpenSegment(uint32_t number, Part part, std::string path, io::FileRef file);
  // What is safe now of an open segment, in order of offset, behind all before. A cold part is
  // nobody's until the hot one that names it is added: who gives that up frees the cold one.
  void Add(uint32_t number, std::vector<StoredPart> parts, uint64_t file_bytes);
  std::vector<RecordHead> IndexOf(uint32_t number) const;
  // It is not written any more. A segment without live payloads is dead from then on, and at once
  // if nothing in it was ever acknowledged.
  void CloseSegment(uint32_t number, uint64_t file_bytes, uint64_t now_ms);

  // --- for recovery ---
  // A closed segment with what is live of it, in order of offset; those of cold parts first. Its
  // entry in the directory is durable.
  void Restore(uint32_t number, Part part, std::string path, uint64_t file_bytes,
               const std::vector<RecordHead>& live, uint64_t now_ms);

  // --- for readers ---
  absl::Status Open(absl::Span<const PayloadId> ids, Parts parts, std::vector<PayloadView>* out);
  // Views that hold what is in memory of what is wanted; *missing is the rest, with the index of
  // each. What is looked at to be loaded leaves the window. NotFound if a payload is dead.
  enum class Why : uint8_t { kToSee, kToLoad };
  struct Missing {
    size_t index = 0;
    LiveRecord record;
  };
  absl::Status Look(absl::Span<const PayloadParts> wanted, Why why, std::vector<PayloadView>* views,
                    std::vector<Missing>* missing);
  // Puts what was read back of a record into memory, and returns its blocks; nullopt if it is dead
  // by now. `ahead`: nobody has asked for it yet.
  std::optional<BlockList> Install(PayloadId id, BlockList blocks, bool ahead);
  // Of those that are in the window and not in memory.
  std::vector<RecordHead> AheadOf(absl::Span<const PayloadId> ids);
  // Whether the record is live, of a payload or of a cold part.
  bool Holds(PayloadId id);
  // What is live, in the order of places, from behind `*after` (PayloadId() at first); moves it,
  // and sets it to the highest id there can be at the end. Looks at no more than `most` records.
  std::vector<LiveRecord> LiveAfter(PayloadId* after, size_t most) const;
  // NotFound if it is gone.
  absl::StatusOr<SegmentFile> FileOf(uint32_t number) const;
  void SetFile(uint32_t number, io::FileRef file);
  void DropFile(uint32_t number);

  // --- for everybody ---
  // Of payloads, or of cold parts that are nobody's.
  void Free(absl::Span<const PayloadId> ids, uint64_t now_ms);
  // As PayloadStore::Want.
  void Want(StepId step, std::vector<PayloadId> ids);
  // Moves the window on, if there is room in it for `batch_bytes`, by as much; the payloads that
  // have to be read.
  std::vector<PayloadId> TakeReadAhead(uint64_t batch_bytes);
  // They leave the window, and memory at once, but for views of them.
  void Cool(absl::Span<const PayloadId> ids);
  // Dead for gc_grace_ms; each is named once until it comes back by Forget or KeepDead. Never the
  // newest that a power loss would leave.
  std::vector<std::pair<uint32_t, std::string>> TakeDead(uint64_t now_ms, uint64_t grace_ms);
  void Forget(uint32_t number);
  void KeepDead(uint32_t number, uint64_t now_ms);

  std::vector<SegmentInUse> InUse() const;
  PayloadUse use() const;
  // In memory, and nobody's wish: given up when the budget is short.
  uint64_t GivesWayBytes() const;
  void AddUse(StoreUse* use) const;

 private:
  enum class Use : uint8_t { kCached, kWanted, kLoaded };
  struct Record {
    RecordHead head;
    BlockList blocks;  // empty if it is not in memory
    Record* older = nullptr;
    Record* younger = nullptr;
    // The payload's other part. Null: it has none, or it is not safe yet.
    Record* other = nullptr;
    bool live = true;
    bool ahead = false;  // read before anybody asked
    Use use = Use::kCached;
    Part part = Part::kHot;
  };
  // What is in memory, linked through itself.
  struct List {
    Record* oldest = nullptr;
    Record* youngest = nullptr;
    void AddYoungest(Record* record);
    void AddOldest(Record* record);
    void Remove(Record* record);
  };
  // What a step will load. Up to `next` it is, or was, in the window.
  struct Plan {
    std::vector<PayloadId> ids;
    size_t next = 0;
  };
  struct Batch {
    uint64_t bytes_max = 0;
    uint64_t bytes = 0;
    std::vector<PayloadId> read;
  };
  static constexpr size_t kLooksAtOnce = 1024;  // under one lock
  enum class State : uint8_t { kOpen, kClosed, kDead, kUnlinking };
  struct Segment {
    std::string path;
    io::FileRef file;
    Part part = Part::kHot;
    State state = State::kOpen;
    uint64_t file_bytes = 0;
    uint64_t live_bytes = 0;
    uint64_t live = 0;
    uint64_t dead_since_ms = 0;
    std::deque<Record> records;
  };

  static uint64_t FootprintOf(const Record& record) {
    return PayloadBuilder::Footprint(record.head.bytes);
  }
  Record* Find(PayloadId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its hot part; null of an id that only names a cold one.
  Record* FindPayload(PayloadId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static LiveRecord Describe(const Record& record) {
    const bool cold = record.part == Part::kCold && record.other != nullptr;
    return {record.head, cold ? record.other->head.id : record.head.id, record.part};
  }
  List& ListOf(const Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (record.use == Use::kWanted) return wanted_;
    if (record.use == Use::kLoaded) return loaded_;
    return record.part == Part::kCold ? cold_ : cached_;
  }
  Record& AddRecord(Segment* segment, const RecordHead& head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountResident(const Record& record, bool in_memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts what is in memory into the list of its use, and counts it there.
  void Link(Record* record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetUse(Record* record, Use use) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Asked(Record* record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Restart(PayloadId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False if there is no room for it.
  bool TakeNext(Plan* plan, Batch* batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeSome(Batch* batch);
  void EndPlan(StepId step);
  // Files of closed segments beyond the limit, the longest unused first, to be closed.
  std::vector<io::FileRef> AddFile(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeOut(Record* record, std::vector<Block*>* blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // TakeOut, if it is in memory; it leaves the window in any case.
  void GiveUp(Record* record, std::vector<Block*>* blocks) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of a payload both parts.
  void Kill(Record* record, uint64_t now_ms, std::vector<Block*>* blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KillPart(Record* record, uint64_t now_ms, std::vector<Block*>* blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t Evict(uint64_t bytes, bool reading);
  enum class From : uint8_t { kOldest, kYoungest };
  // At least so many bytes, if there are.
  uint64_t EvictFrom(List* list, From from, uint64_t bytes, std::vector<Block*>* blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t want_bytes_max_;
  const size_t files_max_;
  const PayloadBudget::Owner budget_;
  mutable Mutex mutex_;
  std::map<uint32_t, Segment> segments_ ABSL_GUARDED_BY(mutex_);
  List cached_ ABSL_GUARDED_BY(mutex_);  // hot
  List cold_ ABSL_GUARDED_BY(mutex_);    // cached, too
  List wanted_ ABSL_GUARDED_BY(mutex_);
  List loaded_ ABSL_GUARDED_BY(mutex_);
  uint64_t loaded_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of loaded_
  std::map<StepId, Plan> plans_ ABSL_GUARDED_BY(mutex_);
  uint32_t newest_ ABSL_GUARDED_BY(mutex_) = 0;  // of those whose entry in the directory is durable
  std::deque<uint32_t> files_ ABSL_GUARDED_BY(mutex_);  // opened for reading, oldest first
  uint64_t payloads_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t payload_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  StoreUse use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::storage
