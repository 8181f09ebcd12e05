// Reads every payload that lies in the store against its crc, in the background and at a bounded
// rate, one part of one after another.
//
// Thread-safe. Start may be called again and again; Tick, from the ticker, gives it its rate. Close
// it before the engine and the storage go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "server/services.h"
#include "storage/segment_checker.h"

namespace forebay::server {

class PayloadVerification : public std::enable_shared_from_this<PayloadVerification> {
 public:
  static constexpr uint64_t kRateDefault = uint64_t{64} << 20;
  static constexpr uint64_t kRateMin = uint64_t{64} << 10;
  static constexpr uint64_t kRateMax = uint64_t{1} << 40;
  static constexpr size_t kDamageTextsMax = 100;

  struct Progress {
    bool running = false;
    uint64_t payloads = 0, payload_bytes = 0;  // as counted at its beginning
    uint64_t read_payloads = 0, read_bytes = 0;
    uint64_t freed = 0, damaged = 0;
    std::vector<std::string> damage;  // the first kDamageTextsMax
    uint64_t began_ms = 0, ended_ms = 0;
  };

  explicit PayloadVerification(ServiceContext* context) : context_(context) {}
  // Nothing is begun any more, and the context is not used from then on; a read that is under way
  // ends unheard.
  void Close();

  // Begins, or gives the one that runs another rate. FailedPrecondition for a run in memory.
  absl::Status Start(uint64_t bytes_per_second);
  Progress progress() const;
  void Tick(uint64_t now_ms);

 private:
  // Those that were lost at the start and are still named: shard after shard, then the ledger.
  using Lost = std::map<PayloadId, std::string>;  // and why
  void LookForLost(uint32_t shard, Lost lost);
  void NoteLost(Lost* lost, PayloadId named);
  // Checks what the rate allows.
  void Continue();
  // False if nothing is to be checked now.
  bool TakeNext(storage::LiveRecord* record);
  void Checked(const storage::LiveRecord& record, const absl::Status& status);
  void NoteDamage(const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ServiceContext* const context_;
  mutable Mutex mutex_;
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_per_second_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t allowed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ticked_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  bool looked_for_lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool checking_ ABSL_GUARDED_BY(mutex_) = false;
  PayloadId after_ ABSL_GUARDED_BY(mutex_);
  std::vector<storage::LiveRecord> next_ ABSL_GUARDED_BY(mutex_);  // the next one last
  std::shared_ptr<storage::SegmentChecker> checker_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace forebay::server
