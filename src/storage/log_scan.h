// What a log file's bytes hold, and whether they end well, torn or corrupt.
//
// Pure. A batch that is not right is a torn tail unless something says that it was synced: a later
// batch of the file that names a synced position at or above it, or the caller (`synced`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "storage/log_format.h"

namespace forebay::storage {

struct LogScan {
  enum class End : uint8_t {
    kWhole,    // the last batch ends the file
    kTorn,     // what follows `end` was never acknowledged
    kCorrupt,  // what follows `end` was synced once, and is not right now
    kRefused,  // by the visitor
  };
  End how = End::kWhole;
  uint64_t end = kLogBlock;  // offset behind the last right batch
  uint64_t last_batch = 0;   // offset of that batch; 0 if there is none
  LogPosition next;          // the position that follows it
  LogPosition synced;        // what the file or the caller says is durable
  absl::Status status;       // what is wrong at `end`, or the visitor's answer
};

// The records of a batch are visited only if all of them are right.
using LogVisitor = absl::FunctionRef<absl::Status(LogPosition, std::string_view record)>;

// `file`: all of it, its header decoded and at its place. `synced`: what is known to be durable
// from elsewhere.
LogScan ScanLogFile(std::string_view file, const LogFileHeader& header, LogPosition synced,
                    LogVisitor visit);

// True if a file whose header is not right has a batch, so that the header was synced once.
bool HasLogBatch(std::string_view file);

}  // namespace forebay::storage
