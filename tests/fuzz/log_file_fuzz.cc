// A log file of any bytes: as they are, and with right checksums over what header and heads say.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/crc32c.h"
#include "storage/content_record.h"
#include "storage/log_scan.h"

namespace {

using namespace forebay;
using namespace forebay::storage;

void PutCrc(std::string* file, size_t at, uint32_t crc) {
  std::memcpy(file->data() + at, &crc, sizeof(crc));
}

// Makes the checksums of the header and of all heads right.
void Mend(std::string* file) {
  const std::string_view view = *file;
  if (file->size() < kLogBlock) return;
  PutCrc(file, 12, Crc32c(view.substr(16, kLogBlock - 16), Crc32c(view.substr(0, 12))));
  for (size_t at = kLogBlock; at + LogBatchHead::kBytes <= file->size(); at += kLogBlock) {
    PutCrc(file, at + 4, Crc32c(view.substr(at + 8, LogBatchHead::kBytes - 8)));
  }
}

void Scan(std::string_view file) {
  HasLogBatch(file);
  const auto header = DecodeLogFileHeader(file);
  if (!header.ok()) return;
  FOREBAY_CHECK(EncodeLogFileHeader(*header).size() == kLogBlock);
  LogPosition expected = header->first;
  const LogScan scan =
      ScanLogFile(file, *header, LogPosition(), [&](LogPosition position, std::string_view record) {
        FOREBAY_CHECK(position == expected);
        ++expected.value;
        PayloadId id;
        std::string_view item;
        DecodeContentRecord(record, &id, &item);
        return absl::OkStatus();
      });
  FOREBAY_CHECK(scan.next == expected && scan.end <= std::max<size_t>(file.size(), kLogBlock));
  FOREBAY_CHECK(scan.how != LogScan::End::kWhole || scan.end == file.size());
  FOREBAY_CHECK((scan.how == LogScan::End::kCorrupt) == (scan.synced >= scan.next));
  if (scan.how != LogScan::End::kTorn) return;
  // Cut, it is whole.
  const LogScan again = ScanLogFile(file.substr(0, scan.end), *header, LogPosition(),
                                    [](LogPosition, std::string_view) { return absl::OkStatus(); });
  FOREBAY_CHECK(again.how == LogScan::End::kWhole && again.next == scan.next);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  const std::string name = file.substr(0, 64);
  if (const auto parts = ParseLogFileName(name)) {
    FOREBAY_CHECK(LogFileName(parts->machine, parts->number, parts->first) == name);
  }
  Scan(file);
  Mend(&file);
  Scan(file);
  return 0;
}
