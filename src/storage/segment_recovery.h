// Finds the segments of a node again at start, and in them the payloads that are still live.
//
// Reads of each segment with a live payload its header and its index; the heads of single records
// where there is none. Then the same of the segments with the cold parts that those payloads name:
// without its cold part a payload is lost, and a cold part that no payload names is garbage.
// Payloads' bytes are not read: that happens, checked, when they are loaded. Segments in which
// nothing is live are dead from now on. Needs no thread of its own: it goes on in
// the disk's callbacks, several segments at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/disk.h"
#include "storage/segment_options.h"
#include "storage/segment_table.h"

namespace forebay::storage {

struct LostPayload {
  PayloadId id;
  std::string why;  // with the file
};

struct StoreRecovery {
  uint64_t segments = 0;          // with live payloads, or cold parts of some
  uint64_t unsealed = 0;          // of them, without index
  uint64_t dead_segments = 0;     // without; unlinked after the grace time
  uint64_t payloads = 0;          // found, whole
  uint64_t payload_bytes = 0;     // of them
  std::vector<LostPayload> lost;  // live, but not there
  uint32_t last_number = 0;       // the highest that any file or payload has
};

// `done` is called once. An error of the disk other than a missing file ends it, and so does a file
// of a format that is not known: nothing is known to be lost then. Nor is it when the whole folder
// is missing, though payloads are live: DataLoss. Fills the table, which is empty before. The disk
// outlives it.
void RecoverSegments(io::Disk* disk, const SegmentStoreOptions& options, std::string folder,
                     std::shared_ptr<SegmentTable> table, std::vector<PayloadId> live,
                     io::Disk::DoneWith<StoreRecovery> done);

}  // namespace forebay::storage
