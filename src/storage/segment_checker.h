// Holds stored payloads, each part by itself, against their crc as they lie on the disk, past all
// caches of this process: what is in memory is of no interest here, and nothing is kept.
//
// One record at a time: Check again once `done` was called. Otherwise thread-safe. Reads through a
// buffer of its own, whatever the payload's size. The disk outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "io/disk.h"
#include "storage/segment_batch.h"
#include "storage/segment_options.h"
#include "storage/segment_table.h"

namespace forebay::storage {

class SegmentChecker : public std::enable_shared_from_this<SegmentChecker> {
 public:
  SegmentChecker(io::Disk* disk, const SegmentStoreOptions& options,
                 std::shared_ptr<SegmentTable> table);

  // NotFound if the payload is freed meanwhile; DataLoss, naming file and offset, if what lies
  // there is not what was stored, or cannot be read. What is wrong is read a second time before it
  // is judged. `done` runs on a thread of the disk, or, if the payload is gone, before this
  // returns.
  void Check(const LiveRecord& record, io::Disk::Done done);

 private:
  static constexpr uint64_t kBufferBytes = uint64_t{1} << 20;

  void Begin();
  void ReadNext();
  // The bytes of the record from done_ on.
  void Take(std::string_view bytes);
  void Wrong(std::string why);
  void Answer(absl::Status status);

  io::Disk* const disk_;
  const bool direct_;
  const std::shared_ptr<SegmentTable> table_;
  WriteBuffer buffer_{kBufferBytes};

  // Of the check that is under way; whoever answers for the disk has them to himself.
  RecordHead head_;
  PayloadId payload_;
  io::Disk::Done done_;
  std::string path_;
  io::FileRef file_;
  uint32_t file_number_ = 0;  // of file_
  uint64_t read_ = 0;         // of the record, its head included
  uint32_t crc_ = 0;
  bool again_ = false;
};

}  // namespace forebay::storage
