// Looks now and then whether the segments' files are still there. Somebody may remove one, or mount
// something else in the store's place, and writes to an open file would go on as if it could still
// be found.
//
// What is gone is not written to any more, and told as trouble until nothing in it is live, or it
// is back. Thread-safe; no threads of its own: Tick looks at the time. Callbacks of the disk keep
// it alive.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "io/disk.h"
#include "storage/segment_options.h"
#include "storage/segment_table.h"
#include "storage/segment_writer.h"

namespace forebay::storage {

class SegmentPresence : public std::enable_shared_from_this<SegmentPresence> {
 public:
  SegmentPresence(io::Disk* disk, const SegmentStoreOptions& options, std::string folder,
                  std::shared_ptr<SegmentTable> table, std::shared_ptr<SegmentWriter> writer);

  // The folder is there.
  void Start();
  void Tick();
  void Close();

  // Whether the store's folder was there when somebody looked, without the segment's file. If that
  // is not known, the next Tick looks: a server that came back without its file system says of
  // every file that it is not there.
  bool IsGone(uint32_t number);

  StoreTrouble trouble() const;
  void AddUse(StoreUse* use) const;

 private:
  void Listed(const std::vector<SegmentInUse>& before,
              const absl::StatusOr<std::vector<io::Entry>>& files);

  io::Disk* const disk_;
  const SegmentStoreOptions options_;
  const std::string folder_;
  const std::shared_ptr<SegmentTable> table_;
  const std::shared_ptr<SegmentWriter> writer_;

  mutable Mutex mutex_;
  bool looks_ ABSL_GUARDED_BY(mutex_) = false;  // between Start and Close, and not looking now
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_look_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t since_ms_ ABSL_GUARDED_BY(mutex_) = 0;  // when the first of gone_ was missed
  std::set<uint32_t> gone_ ABSL_GUARDED_BY(mutex_);
  bool folder_gone_ ABSL_GUARDED_BY(mutex_) = false;  // and with it all of gone_
};

}  // namespace forebay::storage
