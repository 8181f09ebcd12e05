// A machine's log files and snapshots by their names.
//
// Functions without state; thread-safe. A file's number and first position are in its name, so that
// which files a position needs is known without reading them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "io/disk.h"
#include "storage/log_format.h"

namespace forebay::storage {

// The log files among a directory's, by number. FailedPrecondition if one belongs to another
// machine.
absl::StatusOr<std::vector<LogFileNameParts>> LogFilesAmong(const std::vector<io::Entry>& entries,
                                                            const std::string& machine);

// Unlinks, in the background and in order, the files whose records all lie below `position`: those
// that are followed by one that begins at or below it and whose number is at most `last_number`.
void UnlinkLogFilesBefore(io::Disk* disk, std::string directory, std::string machine,
                          LogPosition position, uint64_t last_number);

}  // namespace forebay::storage
