// Makes payloads safe: takes what was finished, and writes it to segments, several at once.
//
// Each lane has one segment and one write with its sync in flight; when it ends, the lane takes
// what has come meanwhile (group commit). Half of the lanes write cold parts, which come first:
// once one is safe, the payload's hot part, which names its place, waits for one of the other
// lanes, as payloads without a cold part do from the beginning. A payload is acknowledged when its
// bytes and, once a segment, the directory's entry are synced. After an error nothing more is
// written to a segment: what was in flight goes to a new one. A write past its deadline goes to
// another segment too, if others progress; its buffer is kept until it ends.
//
// Thread-safe; no threads of its own: Tick looks at the time. Neither the disk nor a `done` is
// called with the lock held. Callbacks of the disk keep it alive.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "io/disk.h"
#include "storage/segment_batch.h"
#include "storage/segment_options.h"
#include "storage/segment_table.h"

namespace forebay::storage {

class SegmentWriter : public std::enable_shared_from_this<SegmentWriter> {
 public:
  SegmentWriter(io::Disk* disk, const SegmentStoreOptions& options, std::string folder,
                std::shared_ptr<SegmentTable> table);

  // As PayloadStore::Finish. What comes before Start waits.
  void Finish(absl::Span<PayloadBuilder> payloads, absl::Span<PayloadId> ids,
              PayloadStore::Done done);
  // The folder is there; numbers up to `last_number` are taken.
  void Start(uint32_t last_number, uint64_t epoch);
  // Deadlines, and trying again.
  void Tick();
  // What the file system has now. With less than the reserve free nothing more is written.
  void NoteSpace(const io::Space& space);
  // The segment's file is gone: nothing more is written to it, and nothing that is being written is
  // acknowledged.
  void Leave(uint32_t number);
  // Once what waits is written, ends the segments that are open, each with its index. `done` is
  // called once, also when that failed; a disk that hangs may not let it. What is finished later
  // begins new segments.
  void Seal(absl::AnyInvocable<void()> done);
  // What waits is answered Unavailable, what is in flight when it ends.
  void Close();

  StoreTrouble trouble() const;
  // Whether its kind is "full".
  bool full() const;
  void AddUse(StoreUse* use) const;

 private:
  using Actions = std::vector<absl::AnyInvocable<void()>>;
  enum class Stage : uint8_t { kIdle, kOpening, kWriting, kSealing };
  struct OpenSegment {
    uint32_t number = 0;
    uint64_t nonce = 0;
    std::string path;
    io::FileRef file;
    uint64_t end = 0;  // where the next batch begins
    bool entry_synced = false;
    bool gone = false;  // its file
  };
  struct Lane {
    Part part = Part::kHot;
    Stage stage = Stage::kIdle;
    std::unique_ptr<OpenSegment> segment;
    std::shared_ptr<SegmentBatch> batch;  // in flight
    uint64_t since_ms = 0;                // of the stage
  };
  using BatchRef = std::shared_ptr<SegmentBatch>;
  struct Queue {
    std::deque<WaitingPart> parts;
    uint64_t bytes = 0;
    bool gathers = false;  // more is likely to come at once: see SegmentStoreOptions::gather_ms
  };

  uint64_t now_ms() const { return options_.now_ms(); }
  Queue& QueueOf(Part part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_[static_cast<size_t>(part)];
  }
  const Queue& QueueOf(Part part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_[static_cast<size_t>(part)];
  }
  // After the lock: dones, starts on the disk, and room for those who wait for memory.
  void Run(Actions actions);
  // Gives work to idle lanes.
  void Pump(Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets more come before the next write of the part.
  void Gather(Part part, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndGathering(Part part);
  // Whether what waits is worth a further lane, after so many that are opening.
  bool FillsLane(Part part, uint64_t opening) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t reserve() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayOpen(Part part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What completes payloads comes before what begins some: the last room is for hot parts.
  bool HasRoom(Part part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether nothing of the kind waits, nor comes of what is being written.
  bool NoneToCome(Part part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartOpen(size_t lane, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartBatch(size_t lane, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartSeal(size_t lane, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  BatchRef NewBatch(size_t lane, Stage stage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Opened(size_t lane, std::unique_ptr<OpenSegment> segment, absl::StatusOr<io::FileRef> file);

  // The way of a batch: all its bytes, sync, and the first time the directory. Each step calls the
  // next one when the disk has answered.
  void WriteNext(const BatchRef& batch);
  void SyncBatch(const BatchRef& batch);
  void SyncEntry(const BatchRef& batch);
  void Lend(SegmentBatch& batch);
  void Answered(const BatchRef& batch, const absl::Status& status,
                void (SegmentWriter::*next)(const BatchRef&));
  void Ended(const BatchRef& batch, absl::Status status);

  void Succeeded(SegmentBatch& batch, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(const std::shared_ptr<FinishTicket>& ticket, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To the end of its queue; the cold part of it is safe, if it has one.
  void Enqueue(Part part, WaitingPart waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is not stored.
  void GiveUp(WaitingPart& part, const absl::Status& why, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the batch holds waits again, before all others.
  void Requeue(SegmentBatch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lane writes no more to its segment.
  void DropSegment(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailure(const absl::Status& status, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool InFlight(const Lane& lane) { return lane.stage != Stage::kIdle; }

  io::Disk* const disk_;
  const SegmentStoreOptions options_;
  const std::string folder_;
  const std::shared_ptr<SegmentTable> table_;

  mutable Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::AnyInvocable<void()> sealed_ ABSL_GUARDED_BY(mutex_);  // while Seal goes on
  std::array<Queue, 2> waiting_ ABSL_GUARDED_BY(mutex_);       // by part
  uint64_t unsafe_bytes_ ABSL_GUARDED_BY(mutex_) =
      0;                                             // the same, what is in flight, what follows it
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(mutex_);  // those of hot parts first
  std::vector<WriteBuffer> buffers_ ABSL_GUARDED_BY(mutex_);  // not in use
  uint32_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;      // of the names of new segments
  uint64_t abandoned_ ABSL_GUARDED_BY(mutex_) = 0;  // given up, and not ended yet
  uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;   // since the last success
  uint64_t retry_at_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  // May still be written before the next look at what is free; unlimited before the first one.
  uint64_t room_bytes_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;
  io::Space space_ ABSL_GUARDED_BY(mutex_);
  uint64_t low_since_ms_ ABSL_GUARDED_BY(mutex_) = 0;  // without room; 0: there is some
  uint64_t progress_ms_ ABSL_GUARDED_BY(mutex_) = 0;   // when an operation last succeeded
  StoreTrouble trouble_ ABSL_GUARDED_BY(mutex_);       // of the last failure
  StoreTrouble late_ ABSL_GUARDED_BY(mutex_);          // of the write that was given up last
  StoreUse use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::storage
