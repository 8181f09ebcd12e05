// Settings of the segment store, what it counts, and what it says of trouble.
//
// Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/mutations.h"

namespace forebay::storage {

struct SegmentStoreOptions {
  std::string directory;  // segments lie in its folder "segments"; other nodes may use it too
  std::string cluster;
  // Together with the number, the name of a file: no two processes ever have the same three.
  std::string node = "node";
  uint64_t epoch = 0;
  uint64_t incarnation = 0;
  uint64_t seed = 0;  // of the nonces; another one in each process

  // Of payload memory. What is being written or read passes through buffers besides: at most
  // (2 x lanes + abandoned_max) x write_bytes_max + reads_max x read_bytes_max.
  uint64_t bytes_max = uint64_t{4} << 30;
  uint64_t completion_reserve_bytes = uint64_t{256} << 20;
  uint64_t want_bytes_max = uint64_t{1} << 30;  // kept in memory by Want, ahead of loads
  // Read ahead at once, so that what lies side by side is read together; no more than a third of
  // want_bytes_max.
  uint64_t ahead_bytes_max = uint64_t{64} << 20;

  uint64_t segment_bytes = uint64_t{256} << 20;  // a segment is sealed from there on
  uint32_t lanes = 4;                            // segments that are written at once, of each part
  // While a lane is at work, and not for longer than lane_patience_ms, another one starts only for
  // so much: few large writes cost less than many small ones, and what came together lies together.
  uint64_t lane_bytes_min = uint64_t{1} << 20;
  uint64_t lane_patience_ms = 20;
  // After a write of lane_bytes_min or more, so long at most until the next one: what comes as
  // fast fills it meanwhile.
  uint64_t gather_ms = 3;
  uint64_t write_bytes_max = uint64_t{4} << 20;
  uint32_t reads_max = 8;
  uint64_t read_bytes_max = uint64_t{4} << 20;
  uint64_t read_gap_bytes_max = 64 << 10;  // read along, rather than two reads
  uint32_t files_max = 256;                // open for reading
  bool direct = true;

  // Left free on the file system, but for a tenth of it at most: below it the store is full.
  uint64_t reserve_bytes = 0;
  uint64_t space_look_ms = 500;  // between two looks at what is free

  uint64_t gc_grace_ms = 60'000;
  uint64_t gc_grace_when_full_ms = 1'000;  // if that is less
  // A write that takes longer is done again elsewhere, if elsewhere goes on.
  uint64_t write_deadline_ms = 10'000;
  uint32_t abandoned_max = 8;  // writes that were given up and have not ended yet
  // A read that fails is tried again for so long; one that hangs is waited for.
  uint64_t read_patience_ms = 60'000;
  uint64_t presence_ms = 10'000;  // between two looks whether the files are there
  uint64_t retry_least_ms = 100, retry_most_ms = 5'000;

  Mutations mutations = {};

  std::function<uint64_t()> now_ms;
  // Runs a closure once, that much later, not from within the call; without it nothing is gathered.
  std::function<void(uint64_t delay_ms, std::function<void()> work)> after;
};

struct StoreUse {
  uint64_t segments_open = 0, segments_sealed = 0, segments_dead = 0;
  uint64_t segments_gone = 0;    // whose files somebody took away, though something in them is live
  uint64_t file_bytes = 0;       // of all segments that are not unlinked
  uint64_t live_bytes = 0;       // records of payloads that are not freed
  uint64_t cold_live_bytes = 0;  // of them, of cold parts
  uint64_t pinned_bytes = 0;     // dead bytes in closed segments that are more than half dead
  uint64_t resident_bytes = 0, wanted_bytes = 0;
  uint64_t cold_resident_bytes = 0;  // of resident_bytes
  uint64_t evictions = 0, evicted_bytes = 0;
  uint64_t reads_back = 0, read_back_bytes = 0;  // parts of payloads
  uint64_t read_ahead = 0, read_ahead_hits = 0;  // payloads read before they were asked for
  uint64_t writes = 0, written_bytes = 0, syncs = 0;
  uint64_t waiting_bytes = 0;  // finished by their writers, not yet safe
  uint64_t failed_writes = 0, abandoned_writes = 0, unlinked = 0;
  uint64_t damaged = 0;       // payloads whose bytes were wrong twice
  uint64_t buffer_bytes = 0;  // in use for writes and reads now
};

// Ends by itself. `kind` is empty while there is none, else one of
//   full        no space, or a quota is used up
//   failing     writes end with errors
//   hung        nothing has ended for longer than the deadline
//   slow        a write was given up and is done again elsewhere
//   incomplete  files are gone, with what is live in them
//   reading     reads fail or hang
struct StoreTrouble {
  std::string kind;
  std::string what;  // the last error, or which operation hangs
  std::string path;
  uint64_t since_ms = 0;
  uint64_t waiting_bytes = 0;
};

}  // namespace forebay::storage
