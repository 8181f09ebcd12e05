// The bytes behind the model of the payload store: the daemon's segment store on a disk in virtual
// time, with faults. Each payload has bytes of its own, which are compared whenever it is read.
//
// Not thread-safe. Ids are those of the model. Callbacks come in events of their own, or never once
// the process has ended. What the disk does counts for no event of the history.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "io/memory_disk.h"
#include "storage/segment_format.h"
#include "storage/segment_store.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/observer.h"
#include "tests/simulation/options.h"
#include "tests/simulation/stats.h"

namespace forebay::simulation {

// Nothing if the path is of no segment.
std::optional<storage::SegmentName> SegmentNameOf(const std::string& path);

class PayloadDisk {
 public:
  // Told what is wrong with a payload.
  using Alarm = std::function<void(const std::string& what)>;
  // Told of a payload that cannot be read any more, for a bit of it was flipped.
  using Lost = std::function<void(PayloadId id)>;

  PayloadDisk(const HistoryOptions& options, EventQueue* queue, Dice* dice, Stats* stats,
              Observer* observer, Alarm alarm, Lost lost);
  ~PayloadDisk();
  PayloadDisk(const PayloadDisk&) = delete;
  PayloadDisk& operator=(const PayloadDisk&) = delete;

  // `done` when all of them are synced: nothing that names them may be logged before.
  void Write(const std::vector<PayloadId>& ids, std::function<void()> done);
  // One after another. NotFound if one was freed meanwhile; DataLoss after `lost` was told of one.
  void Read(std::vector<PayloadId> ids, std::function<void(absl::Status)> done);
  void Free(PayloadId id);
  void Cool(PayloadId id);
  // Given to Write, and not answered.
  const std::set<PayloadId>& writing() const { return writing_; }

  // The process has ended: nothing that it wrote is acknowledged any more, until Restart.
  void End() { life_ = nullptr; }
  // The process ends, or the power fails; what was being written is gone. The next one must find
  // all of `live`, but for what `lost` is told of.
  void Restart(io::MemoryDisk::CrashKind kind, const std::vector<PayloadId>& live);
  // For a while the disk is slow, hangs, is full, or answers with errors; or a bit is flipped, in
  // what is read once, or in what is stored.
  void Trouble();
  void Heal();

 private:
  using Life = std::weak_ptr<int>;  // of the process
  void Begin();
  void Tick();
  // Runs `work` in an event, if the process is still there.
  void Later(uint64_t delay_ms, std::function<void()> work);
  void Put(const std::vector<PayloadId>& ids, std::shared_ptr<std::function<void()>> done);
  void Check(PayloadId id, storage::Parts parts, const storage::PayloadView& view);
  void Watch(uint64_t process, const io::MemoryAccess& access);
  // A record, with its head.
  struct Extent {
    std::string path;
    uint64_t begin = 0, end = 0;
  };
  // Of a payload's parts, by its place in the store.
  std::vector<Extent> ExtentsOf(PayloadId place);
  std::optional<storage::RecordHead> AddExtent(PayloadId place, std::vector<Extent>* extents);
  void Stored(PayloadId id, PayloadId place);
  void FlipStoredBit();
  // Whether a flipped bit is reason enough to lose it: one of a record of its, or of the page by
  // which a start knows the file.
  bool Hurt(const std::vector<Extent>& extents) const;
  void NoteLost(PayloadId id, const std::vector<Extent>& extents, const std::string& why);
  static std::string BytesOf(PayloadId id);
  static uint64_t ColdBytesOf(PayloadId id);

  const HistoryOptions& options_;
  EventQueue& queue_;
  Dice& dice_;
  Stats& stats_;
  Observer* const observer_;
  const Alarm alarm_;
  const Lost lost_;
  const std::shared_ptr<io::MemoryVolume> volume_ = std::make_shared<io::MemoryVolume>();
  io::ManualTime recovery_;  // goes on while the store is recovered, and the history stands still
  bool recovering_ = false;
  uint64_t incarnation_ = 0;
  uint64_t troubles_ = 0;
  std::map<PayloadId, PayloadId> places_;  // in the store, of what is written and not freed
  std::set<PayloadId> writing_;
  std::map<uint32_t, std::string> paths_;             // of segments, as they were created
  std::map<PayloadId, std::vector<Extent>> extents_;  // of what is in places_
  struct Flip {
    std::string path;
    uint64_t offset = 0;
    uint32_t bit = 0;
  };
  std::vector<Flip> flips_;  // of what is stored
  bool read_flips_ = false;  // the next read, or one soon
  std::shared_ptr<int> life_;
  std::unique_ptr<io::MemoryDisk> disk_;
  std::unique_ptr<storage::SegmentStore> store_;
};

}  // namespace forebay::simulation
