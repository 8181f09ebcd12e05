// What single files of a run hold, record by record, damaged ones too. Nothing is changed, and no
// directory is locked: a file that a daemon is writing ends where it has come to.
//
// Blocks; one thread. Errors say that the file cannot be read, or is of another kind; what is wrong
// within it is told of the record.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "io/disk.h"
#include "storage/log_format.h"
#include "storage/segment_format.h"

namespace forebay::node {

// The record of a payload's part in a segment.
struct SegmentRecord {
  uint64_t offset = 0;  // of its head
  storage::Part part = storage::Part::kHot;
  storage::RecordHead head;
  bool listed = false;  // in the segment's index: it was acknowledged
  // Of a rollout, encoded; empty for a cold part, and for a column that a trainer wrote.
  std::string_view header;
  std::string wrong;  // "" if head and bytes are what they were
};

struct SegmentReport {
  storage::SegmentHeader header;
  std::string header_wrong;  // "" if it is right
  uint64_t file_bytes = 0;
  bool sealed = false;       // has an index
  std::string footer_wrong;  // "" if it is right, or not there
  uint64_t records = 0, listed = 0, damaged = 0;
  uint64_t payload_bytes = 0;  // of those that are not
};

// The string views live during the call of `visit`.
absl::StatusOr<SegmentReport> InspectSegment(
    io::Disk* disk, const std::string& path,
    absl::FunctionRef<void(const SegmentRecord& record)> visit);

// A record of a log, or a place where none can be read.
struct LogRecord {
  uint64_t offset = 0;   // of its length
  uint64_t batch = 0;    // offset of its batch
  LogPosition position;  // 0 where none can be read
  uint64_t bytes = 0;
  std::string command;  // its name; "" if it is not known
  std::string fields;   // see CommandText
  std::string wrong;    // "" if its crc is right
};

struct LogReport {
  storage::LogFileHeader header;
  std::string header_wrong;  // "" if it is right
  uint64_t file_bytes = 0;
  uint64_t batches = 0, records = 0, damaged = 0;
  LogPosition synced;  // what the file itself says is durable
  // "whole", "torn" (what follows was never acknowledged) or "corrupt"; then where, and why.
  std::string end;
  uint64_t end_offset = 0;
  std::string end_why;
};

inline constexpr uint64_t kInspectedLogBytesMax = uint64_t{1} << 30;
// `fields_bytes_max`: of LogRecord::fields.
absl::StatusOr<LogReport> InspectLog(io::Disk* disk, const std::string& path,
                                     size_t fields_bytes_max,
                                     absl::FunctionRef<void(const LogRecord& record)> visit);

}  // namespace forebay::node
