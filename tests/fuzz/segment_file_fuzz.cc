// Any bytes as a segment file: nothing is believed unchecked. What a head, a header, an index say
// encodes to the same bytes again.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/crc32c.h"
#include "storage/segment_format.h"

namespace forebay::storage {
namespace {

void ReadFooter(std::string_view file) {
  if (file.size() < kSegmentTrailerBytes) return;
  const auto trailer =
      DecodeSegmentTrailer(file.substr(file.size() - kSegmentTrailerBytes), file.size());
  if (!trailer.ok()) return;
  FOREBAY_CHECK(trailer->index_offset + trailer->index_bytes() <= file.size());
  const std::string_view bytes = file.substr(trailer->index_offset, trailer->index_bytes());
  const auto index = DecodeSegmentIndex(bytes, *trailer, 1);
  if (!index.ok()) return;
  for (const RecordHead& record : index->records) {
    FOREBAY_CHECK(PlaceOf(record.id).offset + RecordBytes(record.bytes) <= trailer->index_offset);
  }
  const std::string again = EncodeSegmentFooter(*index, trailer->index_offset);
  if (trailer->version > 1) FOREBAY_CHECK(again.substr(0, bytes.size()) == bytes);
}

void ReadHeader(std::string_view file) {
  const auto header = DecodeSegmentHeader(file);
  if (header.ok()) {
    const auto again = DecodeSegmentHeader(EncodeSegmentHeader(*header));
    FOREBAY_CHECK(again.ok() && again->name == header->name && again->nonce == header->nonce &&
                  again->part == header->part);
  }
  const std::string name(file.substr(0, 64));
  if (const auto parsed = ParseSegmentFileName(name)) FOREBAY_CHECK(FileNameOf(*parsed) == name);
}

void Scan(std::string_view file) {
  uint64_t end = kSegmentPage;
  (void)ScanSegment(file, [&](const ScannedRecord& record) {
    FOREBAY_CHECK(PlaceOf(record.head.id).offset >= end);
    FOREBAY_CHECK(record.bytes.size() == record.head.bytes);
    end = PlaceOf(record.head.id).offset + RecordBytes(record.head.bytes);
    char head[kRecordHeadBytes];
    EncodeRecordHead(record.head, head);
    FOREBAY_CHECK(
        std::equal(head, head + kRecordHeadBytes, record.bytes.data() - kRecordHeadBytes));
  });
}

// Makes checksums right, so that what lies behind them is reached.
std::string Repaired(std::string file) {
  const auto put = [&](size_t at, uint32_t crc) {
    std::copy_n(reinterpret_cast<const char*>(&crc), 4, file.data() + at);
  };
  if (file.size() < 2 * kSegmentPage) return file;
  put(kSegmentPage - 4, Crc32c(std::string_view(file).substr(0, kSegmentPage - 4)));
  put(kSegmentPage + 4,
      Crc32c(std::string_view(file).substr(kSegmentPage + 8, kRecordHeadBytes - 8)));
  const size_t trailer = file.size() - kSegmentTrailerBytes;
  put(file.size() - 4, Crc32c(std::string_view(file).substr(trailer, kSegmentTrailerBytes - 4)));
  return file;
}

}  // namespace

void ReadAnySegment(const std::string& file) {
  for (const std::string& bytes : {file, Repaired(file)}) {
    ReadHeader(bytes);
    ReadFooter(bytes);
    Scan(bytes);
  }
  (void)DecodeRecordHead(file);
}

}  // namespace forebay::storage

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  forebay::storage::ReadAnySegment({reinterpret_cast<const char*>(data), size});
  return 0;
}
