#include "storage/segment_format.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "codec/archive.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kHeaderMagic = 0x3147455359424546;    // "FEBYSEG1" as bytes
constexpr uint64_t kTrailerMagic1 = 0x31444e4559424546;  // "FEBYEND1", of version 1
constexpr uint64_t kTrailerMagic = 0x32444e4559424546;   // "FEBYEND2"
constexpr uint32_t kRecordMagic = 0x44524246;            // "FBRD"
constexpr uint32_t kFormatVersion = 2;
constexpr std::string_view kSuffix = ".seg";

struct HeaderFields {
  uint64_t magic = kHeaderMagic;
  uint32_t version = kFormatVersion;
  uint32_t number = 0;
  uint64_t epoch = 0;
  uint64_t incarnation = 0;
  uint64_t nonce = 0;
  std::string cluster, node;
  uint8_t part = 0;  // a zero of the page in version 1

  template <class A>
  void Fields(A& a) {
    a(magic, version, number, epoch, incarnation, nonce, cluster, node, part);
  }
};

struct HeadFields {
  uint32_t magic = kRecordMagic;
  uint32_t head_crc = 0;  // of what follows
  uint64_t id = 0;
  uint64_t bytes = 0;
  uint32_t header_bytes = 0;
  uint32_t crc = 0;
  uint64_t cold = 0;  // zeros in version 1
  uint8_t zeros[24] = {};
};
static_assert(sizeof(HeadFields) == kRecordHeadBytes);

struct IndexEntry {
  uint32_t place = 0;  // offset / kRecordAlignment
  uint32_t bytes = 0;
  uint32_t header_bytes = 0;
  uint32_t crc = 0;
  uint64_t cold = 0;  // not there in version 1
};
constexpr uint64_t EntryBytes(uint32_t version) {
  return version == 1 ? offsetof(IndexEntry, cold) : sizeof(IndexEntry);
}
static_assert(EntryBytes(1) == 16 && EntryBytes(kFormatVersion) == 24);

struct TrailerFields {
  uint64_t magic = kTrailerMagic;
  uint64_t nonce = 0;
  uint64_t index_offset = 0;
  uint32_t records = 0;
  uint32_t index_crc = 0;
  uint8_t zeros[28] = {};
  uint32_t crc = 0;  // of all before
};
static_assert(sizeof(TrailerFields) == kSegmentTrailerBytes);

template <class T>
T Copy(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

uint32_t HeadCrc(const HeadFields& fields) {
  return Crc32c({reinterpret_cast<const char*>(&fields) + 8, sizeof(fields) - 8});
}
uint32_t TrailerCrc(const TrailerFields& fields) {
  return Crc32c({reinterpret_cast<const char*>(&fields), sizeof(fields) - 4});
}

// What a hot record may say of its cold one.
bool MayBeCold(PayloadId cold, PayloadId hot) {
  return cold == PayloadId() || (cold != hot && PlaceOf(cold).segment > 0);
}

template <size_t N>
bool AllZero(const uint8_t (&bytes)[N]) {
  return std::all_of(bytes, bytes + N, [](uint8_t byte) { return byte == 0; });
}

absl::Status Damaged(const char* what) { return absl::DataLossError(what); }

bool ParseHex(absl::string_view text, uint64_t* value) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  return plain && !text.empty() && text.size() <= 16 && absl::SimpleHexAtoi(text, value);
}

}  // namespace

// --- names ---

bool IsNodeName(std::string_view node) {
  return !node.empty() && node.size() <= 128 && std::all_of(node.begin(), node.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::string FileNameOf(const SegmentName& name) {
  return absl::StrCat(name.node, "-", absl::Hex(name.epoch), "-", absl::Hex(name.incarnation), "-",
                      absl::Hex(name.number, absl::kZeroPad6), std::string(kSuffix));
}

std::optional<SegmentName> ParseSegmentFileName(std::string_view file_name) {
  if (!file_name.ends_with(kSuffix)) return std::nullopt;
  std::string_view rest = file_name.substr(0, file_name.size() - kSuffix.size());
  uint64_t numbers[3];  // number, incarnation, epoch: from the end, since a node's name has hyphens
  for (uint64_t& number : numbers) {
    const size_t hyphen = rest.rfind('-');
    if (hyphen == std::string_view::npos) return std::nullopt;
    if (!ParseHex({rest.data() + hyphen + 1, rest.size() - hyphen - 1}, &number)) {
      return std::nullopt;
    }
    rest = rest.substr(0, hyphen);
  }
  if (!IsNodeName(rest) || numbers[0] == 0 || numbers[0] > kSegmentNumberMax) return std::nullopt;
  SegmentName name{.node = std::string(rest),
                   .epoch = numbers[2],
                   .incarnation = numbers[1],
                   .number = static_cast<uint32_t>(numbers[0])};
  // One name for one segment.
  if (FileNameOf(name) != file_name) return std::nullopt;
  return name;
}

// --- header ---

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  FOREBAY_CHECK(IsNodeName(header.name.node) && header.cluster.size() <= kClusterNameBytesMax);
  std::string page = codec::Encode(HeaderFields{.number = header.name.number,
                                                .epoch = header.name.epoch,
                                                .incarnation = header.name.incarnation,
                                                .nonce = header.nonce,
                                                .cluster = header.cluster,
                                                .node = header.name.node,
                                                .part = static_cast<uint8_t>(header.part)});
  page.resize(kSegmentPage - 4);
  const uint32_t crc = Crc32c(page);
  page.append(reinterpret_cast<const char*>(&crc), 4);
  return page;
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(std::string_view page) {
  if (page.size() < kSegmentPage) return Damaged("segment header: the file is shorter than a page");
  const std::string_view covered = page.substr(0, kSegmentPage - 4);
  if (Copy<uint64_t>(page.data()) != kHeaderMagic) return Damaged("segment header: no magic");
  if (Copy<uint32_t>(page.data() + covered.size()) != Crc32c(covered)) {
    return Damaged("segment header: crc");
  }
  HeaderFields fields;
  codec::Reader reader(covered);
  reader(fields);
  if (fields.version == 0 || fields.version > kFormatVersion) {
    return absl::UnimplementedError(absl::StrCat("segment header: format version ", fields.version,
                                                 ", known are 1 to ", kFormatVersion));
  }
  if (!reader.ok() || !IsNodeName(fields.node) || fields.number == 0 ||
      fields.number > kSegmentNumberMax || fields.cluster.size() > kClusterNameBytesMax ||
      fields.part > (fields.version == 1 ? 0 : static_cast<uint8_t>(Part::kCold))) {
    return Damaged("segment header: fields");
  }
  return SegmentHeader{.cluster = std::move(fields.cluster),
                       .name = {.node = std::move(fields.node),
                                .epoch = fields.epoch,
                                .incarnation = fields.incarnation,
                                .number = fields.number},
                       .nonce = fields.nonce,
                       .part = static_cast<Part>(fields.part)};
}

// --- records ---

void EncodeRecordHead(const RecordHead& head, char* to) {
  HeadFields fields{.id = head.id.value,
                    .bytes = head.bytes,
                    .header_bytes = head.header_bytes,
                    .crc = head.crc,
                    .cold = head.cold.value};
  fields.head_crc = HeadCrc(fields);
  std::memcpy(to, &fields, sizeof(fields));
}

absl::StatusOr<RecordHead> DecodeRecordHead(std::string_view bytes) {
  if (bytes.size() < kRecordHeadBytes) return Damaged("record head: cut short");
  const auto fields = Copy<HeadFields>(bytes.data());
  if (fields.magic != kRecordMagic) return Damaged("record head: no magic");
  if (fields.head_crc != HeadCrc(fields)) return Damaged("record head: crc");
  const RecordHead head{.id = PayloadId(fields.id),
                        .bytes = fields.bytes,
                        .header_bytes = fields.header_bytes,
                        .crc = fields.crc,
                        .cold = PayloadId(fields.cold)};
  if (head.bytes == 0 || head.bytes > kSegmentBytesMax || head.header_bytes > head.bytes ||
      PlaceOf(head.id).check != FoldCrc(head.crc) || !MayBeCold(head.cold, head.id) ||
      !AllZero(fields.zeros)) {
    return Damaged("record head: fields");
  }
  return head;
}

std::string DamageText(const std::string& path, PayloadId record, PayloadId payload,
                       absl::string_view why) {
  return absl::StrCat(path, " at offset ", PlaceOf(record).offset, ", ",
                      record == payload ? "" : "cold columns of ", "payload ",
                      absl::Hex(payload.value), ": ", why);
}

// --- footer ---

uint64_t SegmentTrailer::index_bytes() const { return records * EntryBytes(version); }

std::string EncodeSegmentFooter(const SegmentIndex& index, uint64_t offset) {
  FOREBAY_CHECK(offset % kSegmentPage == 0);
  std::string footer;
  footer.reserve(
      RoundUp(index.records.size() * sizeof(IndexEntry) + kSegmentTrailerBytes, kSegmentPage));
  for (const RecordHead& record : index.records) {
    const IndexEntry entry{
        .place = static_cast<uint32_t>(PlaceOf(record.id).offset / kRecordAlignment),
        .bytes = static_cast<uint32_t>(record.bytes),
        .header_bytes = record.header_bytes,
        .crc = record.crc,
        .cold = record.cold.value};
    footer.append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  }
  TrailerFields trailer;
  trailer.nonce = index.nonce;
  trailer.index_offset = offset;
  trailer.records = static_cast<uint32_t>(index.records.size());
  trailer.index_crc = Crc32c(footer);
  trailer.crc = TrailerCrc(trailer);
  footer.resize(RoundUp(footer.size() + kSegmentTrailerBytes, kSegmentPage) - kSegmentTrailerBytes);
  footer.append(reinterpret_cast<const char*>(&trailer), sizeof(trailer));
  return footer;
}

absl::StatusOr<SegmentTrailer> DecodeSegmentTrailer(std::string_view end, uint64_t file_bytes) {
  if (end.size() != kSegmentTrailerBytes || file_bytes < 2 * kSegmentPage) {
    return absl::NotFoundError("segment trailer: the file is too short for one");
  }
  const auto fields = Copy<TrailerFields>(end.data());
  if (fields.magic != kTrailerMagic && fields.magic != kTrailerMagic1) {
    return absl::NotFoundError("segment trailer: no magic");
  }
  if (fields.crc != TrailerCrc(fields)) return Damaged("segment trailer: crc");
  const SegmentTrailer trailer{.nonce = fields.nonce,
                               .index_offset = fields.index_offset,
                               .records = fields.records,
                               .index_crc = fields.index_crc,
                               .version = fields.magic == kTrailerMagic1 ? 1 : kFormatVersion};
  // The index and the trailer end the file, with less than a page between them.
  if (trailer.index_offset % kSegmentPage != 0 || trailer.index_offset < kSegmentPage ||
      trailer.index_offset > file_bytes ||
      RoundUp(trailer.index_bytes() + kSegmentTrailerBytes, kSegmentPage) !=
          file_bytes - trailer.index_offset ||
      !AllZero(fields.zeros)) {
    return Damaged("segment trailer: fields");
  }
  return trailer;
}

absl::StatusOr<SegmentIndex> DecodeSegmentIndex(std::string_view bytes,
                                                const SegmentTrailer& trailer, uint32_t segment) {
  if (bytes.size() != trailer.index_bytes()) return Damaged("segment index: length");
  if (Crc32c(bytes) != trailer.index_crc) return Damaged("segment index: crc");
  SegmentIndex index{.nonce = trailer.nonce, .records = {}};
  index.records.reserve(trailer.records);
  uint64_t end = kSegmentPage;
  const uint64_t entry_bytes = EntryBytes(trailer.version);
  for (; !bytes.empty(); bytes.remove_prefix(entry_bytes)) {
    IndexEntry entry;
    std::memcpy(&entry, bytes.data(), entry_bytes);
    const uint64_t offset = uint64_t{entry.place} * kRecordAlignment;
    if (offset < end || entry.bytes == 0 || entry.header_bytes > entry.bytes ||
        offset >= trailer.index_offset ||
        RecordBytes(entry.bytes) > trailer.index_offset - offset) {
      return Damaged("segment index: entry");
    }
    end = offset + RecordBytes(entry.bytes);
    const RecordHead head{
        .id = IdOf({.segment = segment, .offset = offset, .check = FoldCrc(entry.crc)}),
        .bytes = entry.bytes,
        .header_bytes = entry.header_bytes,
        .crc = entry.crc,
        .cold = PayloadId(entry.cold)};
    if (!MayBeCold(head.cold, head.id)) return Damaged("segment index: entry");
    index.records.push_back(head);
  }
  return index;
}

absl::Status ScanSegment(std::string_view contents,
                         absl::FunctionRef<void(const ScannedRecord&)> found) {
  const auto header = DecodeSegmentHeader(contents);
  if (!header.ok()) return header.status();
  uint64_t at = kSegmentPage;
  while (at < contents.size()) {
    const auto head = DecodeRecordHead(contents.substr(at));
    const PayloadPlace place = head.ok() ? PlaceOf(head->id) : PayloadPlace{};
    const bool here = head.ok() && place.segment == header->name.number && place.offset == at &&
                      head->bytes <= contents.size() - at - kRecordHeadBytes;
    const std::string_view bytes =
        here ? contents.substr(at + kRecordHeadBytes, head->bytes) : std::string_view();
    // Between records there may be anything: zeros, or what is left of a torn one.
    if (!here || Crc32c(bytes) != head->crc) {
      at += kRecordAlignment;
      continue;
    }
    found({*head, bytes});
    at += RecordBytes(head->bytes);
  }
  return absl::OkStatus();
}

}  // namespace forebay::storage
