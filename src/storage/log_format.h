// The bytes of a log file: a header block, then batches of records. docs/formats/log.md has the
// grammar and an example.
//
// Pure functions and values. Decoders take any bytes; what they refuse they describe ("crc 1 of the
// head, 2 expected"), their caller knows file and offset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace forebay::storage {

// Header and batches begin at multiples of this, so that no write touches a block that is durable
// already: a block that tears takes nothing along that was acknowledged.
inline constexpr uint64_t kLogBlock = 4096;
inline constexpr uint32_t kLogFormat = 1;
inline constexpr uint64_t kLogRecordBytesMax = uint64_t{65} << 20;
inline constexpr size_t kLogMachineBytesMax = 64;

constexpr uint64_t LogAligned(uint64_t bytes) {
  return (bytes + kLogBlock - 1) / kLogBlock * kLogBlock;
}

struct LogFileHeader {
  std::string machine;       // whose log this is: "shard-3", "ledger"
  uint64_t number = 0;       // of the file, from 1, rising by one
  uint64_t epoch = 0;        // when it was created
  uint64_t incarnation = 0;  // of the replica
  uint64_t nonce = 0;        // of this very file; its batches repeat it
  LogPosition first;         // of the first record; everything before it is synced
  bool operator==(const LogFileHeader&) const = default;
};

// kLogBlock bytes.
std::string EncodeLogFileHeader(const LogFileHeader& header);
// Of the first kLogBlock bytes of a file.
absl::StatusOr<LogFileHeader> DecodeLogFileHeader(std::string_view bytes);

struct LogBatchHead {
  static constexpr size_t kBytes = 48;
  uint64_t nonce = 0;
  uint64_t epoch = 0;
  LogPosition first;
  LogPosition synced;  // everything up to here was durable before this batch was written
  uint32_t count = 0;
  uint32_t bytes = 0;  // of the records, after the head
  bool operator==(const LogBatchHead&) const = default;

  uint64_t stored() const { return LogAligned(kBytes + bytes); }
};

// Of the first bytes of `bytes`; says nothing about the records.
absl::StatusOr<LogBatchHead> DecodeLogBatchHead(std::string_view bytes);

// Takes the records of a batch apart; each must be right.
class LogRecordReader {
 public:
  // `records`: the head's `bytes` bytes after it.
  LogRecordReader(const LogBatchHead& head, std::string_view records)
      : position_(head.first), left_(head.count), records_(records) {}
  // The next record, nothing after the last one, or what is wrong.
  absl::StatusOr<std::optional<std::string_view>> Next();
  // The same without a check: of a batch that another reader has taken apart to its end.
  std::string_view NextOfRight();
  // Of the record that Next gives next.
  LogPosition position() const { return position_; }

 private:
  LogPosition position_;
  uint32_t left_;
  std::string_view records_;
};

// A batch while it grows.
class LogBatchBuilder {
 public:
  LogBatchBuilder() { Clear(); }
  void Clear();
  // Positions follow each other.
  void Add(LogPosition position, std::string_view record);
  uint32_t count() const { return count_; }
  LogPosition last() const { return LogPosition(first_.value + count_ - 1); }
  // As it would be stored.
  uint64_t bytes() const { return bytes_.size(); }
  // Writes the head and pads to the block. There is at least one record; nothing is added after.
  std::string_view Finish(uint64_t nonce, uint64_t epoch, LogPosition synced);

 private:
  std::string bytes_;
  LogPosition first_;
  uint32_t count_ = 0;
};

// "shard-3-00000007-00000000000000001234.log".
std::string LogFileName(const std::string& machine, uint64_t number, LogPosition first);
struct LogFileNameParts {
  std::string machine;
  uint64_t number = 0;
  LogPosition first;
};
// Nothing if it is no name of a log file.
std::optional<LogFileNameParts> ParseLogFileName(std::string_view name);

}  // namespace forebay::storage
