// Reads payloads back from segments: memory first, then the bytes, checked.
//
// A load reserves the memory of all it has to read at once, before new pushes get any, and holds
// nothing while it waits for that, so that loads cannot block each other. Records that lie side by
// side are read together, a payload's parts each by itself; one that is being read already is
// waited for. What is damaged is read once more; an error of the disk a few times, with pauses, and
// for longer than that it is damage if it is an EIO of one place in a file that can be read. Ahead
// of the loads the table's window is filled, some megabytes at a time, when nothing else is read;
// what somebody asks for meanwhile comes first.
//
// Thread-safe; no threads of its own: Tick looks at the time. Neither the disk nor a `done` is
// called with the lock held. Callbacks of the disk keep it alive.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
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
#include "storage/segment_presence.h"
#include "storage/segment_run.h"
#include "storage/segment_table.h"

namespace forebay::storage {

class SegmentReader : public std::enable_shared_from_this<SegmentReader> {
 public:
  SegmentReader(io::Disk* disk, const SegmentStoreOptions& options,
                std::shared_ptr<SegmentTable> table, std::shared_ptr<SegmentPresence> presence);

  // As PayloadStore::LoadParts.
  void Load(std::vector<PayloadParts> wanted, PayloadStore::LoadDone done);
  // Reads what the table wants, as far as there is room.
  void ReadAhead();
  void Tick();
  // Loads are answered Unavailable; reads in flight end unheard.
  void Close();

  StoreTrouble trouble() const;
  void AddUse(StoreUse* use) const;

 private:
  using Actions = std::vector<absl::AnyInvocable<void()>>;
  // One call of Load; without `done` it reads ahead, and gives nobody views.
  struct Job {
    std::vector<PayloadParts> wanted;
    PayloadStore::LoadDone done;
    WaiterId waiter = 0;  // in the budget
    std::vector<PayloadView> views;
    size_t left = 0;       // parts that are being read
    bool stalled = false;  // reading ahead: there was no memory for more
    absl::Status status;
  };
  using JobRef = std::shared_ptr<Job>;
  struct Asker {
    JobRef job;
    size_t index = 0;
    Part part = Part::kHot;
  };
  // A piece of a run that is read at once.
  struct Read {
    std::shared_ptr<SegmentRun> run;
    uint64_t begin = 0, end = 0;
    uint64_t since_ms = 0;
  };
  using ReadRef = std::shared_ptr<Read>;
  using RunRef = std::shared_ptr<SegmentRun>;
  // What was read, and what is wrong with it.
  struct Wrong {
    RunItem item;
    absl::Status why;
  };

  uint64_t now_ms() const { return options_.now_ms(); }
  static void Run(Actions actions);
  void Answer(const JobRef& job, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const JobRef& job, absl::Status status);

  // Starts if `reserved` bytes are enough for what has to be read; else reserves what is.
  void Begin(const JobRef& job, uint64_t reserved);
  bool StartJob(const JobRef& job, std::vector<PayloadView>* views,
                const std::vector<SegmentTable::Missing>& missing, uint64_t* reserved,
                Actions* actions);
  void Reserve(const JobRef& job, uint64_t bytes);
  void QueueRuns(const std::map<PayloadId, LiveRecord>& records, bool ahead)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueRun(const RunRef& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Pump(Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ReadRef NextRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t InFlightBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads of records that a job waits for come before those of others.
  void Promote(const std::vector<PayloadId>& ids) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False if this is not the time.
  bool BeginAhead();

  // The way of a read.
  void Start(const ReadRef& read, std::shared_ptr<WriteBuffer> buffer);
  void StartIn(const ReadRef& read, std::shared_ptr<WriteBuffer> buffer, const io::FileRef& file);
  void Ended(const ReadRef& read, const std::shared_ptr<WriteBuffer>& buffer,
             const absl::StatusOr<size_t>& bytes);
  // All pieces of the run are there, or failed.
  void RunEnded(const RunRef& run);
  void Deliver(PayloadId id, const absl::StatusOr<BlockList>& blocks, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether it is the place that fails: the head of its file can be read. Then Again.
  void Probe(Wrong wrong, bool ahead, const std::string& path);
  // Reads it once more, or says what is wrong with it.
  void Again(Wrong wrong, bool ahead, const std::string& path, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr uint32_t kDamagedReadsMax = 2;
  static constexpr uint32_t kFailedAloneMax = 4;
  static constexpr size_t kAheadJobsMax = 2;
  static constexpr size_t kInFlightMax = 48;  // reads

  io::Disk* const disk_;
  const SegmentStoreOptions options_;
  const uint64_t ahead_bytes_max_;
  const std::shared_ptr<SegmentTable> table_;
  const std::shared_ptr<SegmentPresence> presence_;

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<JobRef> jobs_ ABSL_GUARDED_BY(mutex_);                            // not answered
  std::map<PayloadId, std::vector<Asker>> loading_ ABSL_GUARDED_BY(mutex_);  // by record
  std::deque<ReadRef> queue_ ABSL_GUARDED_BY(mutex_);
  std::deque<ReadRef> ahead_queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<PayloadId> ahead_ ABSL_GUARDED_BY(mutex_);  // there was no memory for them yet
  size_t ahead_jobs_ ABSL_GUARDED_BY(mutex_) = 0;
  std::multimap<uint64_t, RunRef> later_ ABSL_GUARDED_BY(mutex_);  // by time
  std::set<ReadRef> in_flight_ ABSL_GUARDED_BY(mutex_);
  StoreTrouble trouble_ ABSL_GUARDED_BY(mutex_);
  StoreUse use_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::storage
