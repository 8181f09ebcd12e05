// The bytes of a segment file: header page, batches of records, index and trailer at the end.
//
// docs/formats/segment.md has the grammar. Pure functions, safe from any thread; every decoder
// checks before it believes, and takes any bytes. Integers are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "storage/payload_parts.h"

namespace forebay::storage {

// Writes begin at multiples of a page, so that what is synced is never written again, and direct
// access is possible. Records begin at multiples of kRecordAlignment, a head's length: with a head
// at the end of a page the payload begins the next one.
inline constexpr uint64_t kSegmentPage = 4096;
inline constexpr uint64_t kRecordAlignment = 64;
inline constexpr uint64_t kRecordHeadBytes = 64;
inline constexpr uint64_t kSegmentTrailerBytes = 64;
static_assert(kRecordHeadBytes % kRecordAlignment == 0);
inline constexpr uint64_t kSegmentBytesMax = uint64_t{1} << 30;
inline constexpr uint32_t kSegmentNumberMax = (1u << 24) - 1;
static_assert(kSegmentBytesMax / kRecordAlignment == 1u << 24, "24 bits of an id name the record");

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
// What a record of a payload of `bytes` bytes takes in a segment.
constexpr uint64_t RecordBytes(uint64_t bytes) {
  return RoundUp(kRecordHeadBytes + bytes, kRecordAlignment);
}

// Who wrote a segment; its file's name. One of them has one writer.
struct SegmentName {
  std::string node;  // letters, digits, '.', '_', '-'; not empty
  uint64_t epoch = 0;
  uint64_t incarnation = 0;
  uint32_t number = 0;  // from 1; never given twice by a node

  bool operator==(const SegmentName&) const = default;
};
std::string FileNameOf(const SegmentName& name);
std::optional<SegmentName> ParseSegmentFileName(std::string_view file_name);
bool IsNodeName(std::string_view node);

// Where a payload lies; its id says so. `check` is folded from the crc of its bytes, so that an id
// does not name a payload that came to the same place later.
struct PayloadPlace {
  uint32_t segment = 0;
  uint64_t offset = 0;
  uint16_t check = 0;
};
inline constexpr uint16_t FoldCrc(uint32_t crc) { return static_cast<uint16_t>(crc ^ (crc >> 16)); }
constexpr PayloadId IdOf(const PayloadPlace& place) {
  return PayloadId(uint64_t{place.segment} << 40 | (place.offset / kRecordAlignment) << 16 |
                   place.check);
}
constexpr PayloadPlace PlaceOf(PayloadId id) {
  return {.segment = static_cast<uint32_t>(id.value >> 40),
          .offset = (id.value >> 16 & 0xffffff) * kRecordAlignment,
          .check = static_cast<uint16_t>(id.value)};
}

struct SegmentHeader {
  std::string cluster;
  SegmentName name;
  uint64_t nonce = 0;
  Part part = Part::kHot;  // what all its records are
};
inline constexpr size_t kClusterNameBytesMax = 1024;
// One page.
std::string EncodeSegmentHeader(const SegmentHeader& header);
absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view page);

// Before the bytes of each payload, or of a part of one.
struct RecordHead {
  PayloadId id;
  uint64_t bytes = 0;         // of header and columns
  uint32_t header_bytes = 0;  // of the rollout's header, at the beginning
  uint32_t crc = 0;           // of the bytes
  // Of a hot part: the place of the payload's cold part. 0: there is none.
  PayloadId cold;

  bool operator==(const RecordHead&) const = default;
};
void EncodeRecordHead(const RecordHead& head, char* to);
absl::StatusOr<RecordHead> DecodeRecordHead(std::string_view bytes);
// Which record of a file is damaged, for people; `payload`: of which it is a part.
std::string DamageText(const std::string& path, PayloadId record, PayloadId payload,
                       absl::string_view why);

// The index of a sealed segment: every record that was safe, by offset.
struct SegmentIndex {
  uint64_t nonce = 0;
  std::vector<RecordHead> records;
};
struct SegmentTrailer {
  uint64_t nonce = 0;
  uint64_t index_offset = 0;
  uint32_t records = 0;
  uint32_t index_crc = 0;
  uint32_t version = 0;  // of the format

  uint64_t index_bytes() const;
};
// Index and trailer, to be written at `offset`, a multiple of a page; whole pages.
std::string EncodeSegmentFooter(const SegmentIndex& index, uint64_t offset);
// `end`: the last kSegmentTrailerBytes of a file of `file_bytes` bytes. NotFound if it has no
// trailer there: it was never sealed.
absl::StatusOr<SegmentTrailer> DecodeSegmentTrailer(std::string_view end, uint64_t file_bytes);
// `bytes`: those from index_offset on, index_bytes() long.
absl::StatusOr<SegmentIndex> DecodeSegmentIndex(std::string_view bytes,
                                                const SegmentTrailer& trailer, uint32_t segment);

// Finds the records of a segment that has no index: calls `found` for each whose head and bytes are
// whole, in order. `contents` is the whole file.
struct ScannedRecord {
  RecordHead head;
  std::string_view bytes;
};
absl::Status ScanSegment(std::string_view contents,
                         absl::FunctionRef<void(const ScannedRecord&)> found);

}  // namespace forebay::storage
