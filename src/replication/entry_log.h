// The end of a replica's log, in memory: what is not applied, and what peers that lag may need.
//
// Positions from base() + 1 to last(); of base itself only the epoch is known. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "replication/messages.h"

namespace forebay::replication {

class EntryLog {
 public:
  EntryLog() = default;
  EntryLog(LogPlace base, std::vector<Entry> entries);

  LogPlace base() const { return base_; }
  LogPlace last() const;
  // Of a position from base to last.
  Epoch EpochAt(LogPosition position) const;
  bool Has(LogPlace place) const;
  // Of a position after base.
  const Entry& At(LogPosition position) const;
  // Of the entries after `from` up to `to`, both from base to last.
  uint64_t BytesBetween(LogPosition from, LogPosition to) const;

  void Append(Entry entry);
  // Drops `from`, which is after base, and all that follows.
  void TruncateFrom(LogPosition from);
  // Makes `place`, from base to last, the base.
  void TrimTo(LogPosition place);
  // Begins anew at `base`, with what follows it if the log has it.
  void Restart(LogPlace base);

 private:
  struct Kept {
    Entry entry;
    uint64_t end_bytes;  // of all entries that were ever appended, up to this one
  };
  const Kept& KeptAt(LogPosition position) const;
  uint64_t EndBytes(LogPosition position) const;

  LogPlace base_;
  uint64_t base_bytes_ = 0;
  std::deque<Kept> entries_;
};

}  // namespace forebay::replication
