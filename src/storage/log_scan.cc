#include "storage/log_scan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace forebay::storage {
namespace {

// The batch at the beginning of `bytes`, if it is the right one in every respect.
absl::StatusOr<LogBatchHead> CheckBatch(std::string_view bytes, const LogFileHeader& header,
                                        LogPosition next) {
  auto head = DecodeLogBatchHead(bytes);
  if (!head.ok()) return head;
  if (head->nonce != header.nonce) return absl::DataLossError("a batch of another file");
  if (head->first != next) {
    return absl::DataLossError(absl::StrCat("a batch that begins with record ", head->first.value,
                                            ", expected record ", next.value));
  }
  const std::string_view records = bytes.substr(LogBatchHead::kBytes);
  if (head->stored() > bytes.size()) {
    return absl::DataLossError(absl::StrCat("a batch of ", head->stored(), " bytes, ", bytes.size(),
                                            " are left of the file"));
  }
  LogRecordReader reader(*head, records.substr(0, head->bytes));
  while (true) {
    const auto record = reader.Next();
    if (!record.ok()) return record.status();
    if (!record->has_value()) return head;
  }
}

absl::Status Visit(const LogBatchHead& head, std::string_view bytes, LogVisitor visit) {
  LogRecordReader reader(head, bytes.substr(LogBatchHead::kBytes, head.bytes));
  for (uint32_t i = 0; i < head.count; ++i) {
    const LogPosition position = reader.position();
    if (auto status = visit(position, reader.NextOfRight()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// The highest synced position that a head at or after `from` names.
LogPosition SyncedAfter(std::string_view file, uint64_t from, uint64_t nonce) {
  LogPosition synced;
  for (uint64_t at = from; at < file.size(); at += kLogBlock) {
    const auto head = DecodeLogBatchHead(file.substr(at));
    if (head.ok() && head->nonce == nonce) synced = std::max(synced, head->synced);
  }
  return synced;
}

}  // namespace

LogScan ScanLogFile(std::string_view file, const LogFileHeader& header, LogPosition synced,
                    LogVisitor visit) {
  LogScan scan{.next = header.first,
               .synced = std::max(synced, LogPosition(header.first.value - 1))};
  while (scan.end < file.size()) {
    const std::string_view rest = file.substr(scan.end);
    const auto head = CheckBatch(rest, header, scan.next);
    if (!head.ok()) {
      scan.status = head.status();
      scan.synced = std::max(scan.synced, SyncedAfter(file, scan.end, header.nonce));
      scan.how = scan.synced >= scan.next ? LogScan::End::kCorrupt : LogScan::End::kTorn;
      return scan;
    }
    scan.status = Visit(*head, rest, visit);
    if (!scan.status.ok()) {
      scan.how = LogScan::End::kRefused;
      return scan;
    }
    scan.synced = std::max(scan.synced, head->synced);
    scan.last_batch = scan.end;
    scan.end += head->stored();
    scan.next.value += head->count;
  }
  if (scan.synced >= scan.next) {
    scan.how = LogScan::End::kCorrupt;
    scan.status =
        absl::DataLossError(absl::StrCat("the file ends before record ", scan.next.value,
                                         ", and record ", scan.synced.value, " was synced"));
  }
  return scan;
}

bool HasLogBatch(std::string_view file) {
  for (uint64_t at = kLogBlock; at < file.size(); at += kLogBlock) {
    if (DecodeLogBatchHead(file.substr(at)).ok()) return true;
  }
  return false;
}

}  // namespace forebay::storage
