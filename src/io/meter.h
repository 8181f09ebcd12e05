// Counts a disk's operations and their times, knows the oldest that is not answered, and waits for
// all of them.
//
// Thread-safe. An operation is Started, then Finished (counted), then, when its caller has been
// told, Left: in between, what the caller does about the answer may start more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "io/disk.h"

namespace forebay::io {

class Meter {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind : uint8_t { kRead, kWrite, kWriteSynced, kSync, kOther };

  // One operation's place in the list; lives until Finished.
  class Ticket {
    friend class Meter;
    Ticket* older_ = nullptr;
    Ticket* younger_ = nullptr;
    Clock::time_point since_;
  };

  Meter();
  void Start(Ticket* ticket);
  void Finish(Ticket* ticket, Kind kind, uint64_t bytes, bool ok);
  void Leave();

  // Blocks until every operation that was started has left.
  void AwaitIdle();
  DiskUse use() const;

 private:
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable idle_;
  DiskUse use_;
  uint64_t not_left_ = 0;
  Ticket ends_;  // of a ring: its younger_ is the oldest operation
};

}  // namespace forebay::io
