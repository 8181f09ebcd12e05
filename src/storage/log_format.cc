#include "storage/log_format.h"

#include <charconv>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "codec/archive.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kFileMagic = 0x474f4c5941424f46;  // "FOBAYLOG"
constexpr uint32_t kBatchMagic = 0x48435442;         // "BTCH"
constexpr size_t kFileCrcAt = 12, kBatchCrcAt = 4;
constexpr size_t kRecordHead = 8;
constexpr uint32_t kBatchBytesMax = uint32_t{1} << 30;
static_assert(kLogRecordBytesMax + kRecordHead < kBatchBytesMax);

// The whole block, but for the four bytes of the crc.
uint32_t HeaderCrc(std::string_view block) {
  return Crc32c(block.substr(kFileCrcAt + 4), Crc32c(block.substr(0, kFileCrcAt)));
}

// Covers length and position, so that neither a length that lies nor a record of another place
// passes.
uint32_t RecordCrc(LogPosition position, std::string_view record) {
  char before[12];
  const auto length = static_cast<uint32_t>(record.size());
  std::memcpy(before, &length, 4);
  std::memcpy(before + 4, &position.value, 8);
  return Crc32c(record, Crc32c({before, sizeof(before)}));
}

absl::Status Mismatch(absl::string_view what, uint64_t found, uint64_t expected) {
  return absl::DataLossError(absl::StrFormat("%s is %x, expected %x", what, found, expected));
}

// 0 for what is none.
uint64_t NumberOf(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string EncodeLogFileHeader(const LogFileHeader& header) {
  FOREBAY_CHECK(header.machine.size() <= kLogMachineBytesMax);
  std::string bytes;
  codec::Writer writer(&bytes);
  writer(kFileMagic, kLogFormat, uint32_t{0}, header.number, header.epoch, header.incarnation,
         header.nonce, header.first, header.machine);
  bytes.resize(kLogBlock);
  const uint32_t crc = HeaderCrc(bytes);
  std::memcpy(bytes.data() + kFileCrcAt, &crc, sizeof(crc));
  return bytes;
}

absl::StatusOr<LogFileHeader> DecodeLogFileHeader(std::string_view bytes) {
  if (bytes.size() < kLogBlock) {
    return absl::DataLossError(
        absl::StrCat("a file of ", bytes.size(), " bytes, its header takes ", kLogBlock));
  }
  bytes = bytes.substr(0, kLogBlock);
  codec::Reader reader(bytes);
  uint64_t magic = 0;
  uint32_t format = 0, crc = 0;
  LogFileHeader header;
  reader(magic, format, crc);
  if (magic != kFileMagic) return Mismatch("the file's magic number", magic, kFileMagic);
  if (format != kLogFormat) return Mismatch("the file's format", format, kLogFormat);
  const uint32_t expected = HeaderCrc(bytes);
  if (crc != expected) return Mismatch("the crc of the file's header", crc, expected);
  reader(header.number, header.epoch, header.incarnation, header.nonce, header.first,
         header.machine);
  if (!reader.ok() || header.machine.size() > kLogMachineBytesMax || header.first.value == 0) {
    return absl::DataLossError("the file's header contradicts itself");
  }
  return header;
}

absl::StatusOr<LogBatchHead> DecodeLogBatchHead(std::string_view bytes) {
  if (bytes.size() < LogBatchHead::kBytes) {
    return absl::DataLossError(
        absl::StrCat(bytes.size(), " bytes, a batch's head takes ", LogBatchHead::kBytes));
  }
  bytes = bytes.substr(0, LogBatchHead::kBytes);
  codec::Reader reader(bytes);
  uint32_t magic = 0, crc = 0;
  LogBatchHead head;
  reader(magic, crc, head.nonce, head.epoch, head.first, head.synced, head.count, head.bytes);
  if (magic != kBatchMagic) return Mismatch("the batch's magic number", magic, kBatchMagic);
  const uint32_t expected = Crc32c(bytes.substr(kBatchCrcAt + 4));
  if (crc != expected) return Mismatch("the crc of the batch's head", crc, expected);
  if (head.count == 0 || head.bytes > kBatchBytesMax || head.synced >= head.first ||
      uint64_t{head.count} * kRecordHead > head.bytes ||
      head.first.value > UINT64_MAX - head.count) {
    return absl::DataLossError("the batch's head contradicts itself");
  }
  return head;
}

absl::StatusOr<std::optional<std::string_view>> LogRecordReader::Next() {
  if (left_ == 0) {
    if (!records_.empty()) {
      return absl::DataLossError(absl::StrCat(records_.size(), " bytes after the last record"));
    }
    return std::nullopt;
  }
  codec::Reader reader(records_);
  uint32_t length = 0, crc = 0;
  reader(length, crc);
  if (!reader.ok() || length > reader.left()) {
    return absl::DataLossError(absl::StrCat("record ", position_.value, " does not fit its batch"));
  }
  const std::string_view record = records_.substr(kRecordHead, length);
  const uint32_t expected = RecordCrc(position_, record);
  if (crc != expected) {
    return Mismatch(absl::StrCat("the crc of record ", position_.value), crc, expected);
  }
  records_.remove_prefix(kRecordHead + length);
  ++position_.value;
  --left_;
  return record;
}

std::string_view LogRecordReader::NextOfRight() {
  uint32_t length = 0;
  std::memcpy(&length, records_.data(), sizeof(length));
  const std::string_view record = records_.substr(kRecordHead, length);
  records_.remove_prefix(kRecordHead + length);
  ++position_.value;
  --left_;
  return record;
}

void LogBatchBuilder::Clear() {
  bytes_.assign(LogBatchHead::kBytes, '\0');
  count_ = 0;
}

void LogBatchBuilder::Add(LogPosition position, std::string_view record) {
  FOREBAY_CHECK(record.size() <= kLogRecordBytesMax);
  if (count_ == 0) first_ = position;
  FOREBAY_CHECK(position.value == first_.value + count_);
  ++count_;
  codec::Writer writer(&bytes_);
  writer(static_cast<uint32_t>(record.size()), RecordCrc(position, record));
  writer.Bytes(record.data(), record.size());
}

std::string_view LogBatchBuilder::Finish(uint64_t nonce, uint64_t epoch, LogPosition synced) {
  FOREBAY_CHECK(count_ > 0 && bytes_.size() - LogBatchHead::kBytes <= kBatchBytesMax);
  std::string head;
  codec::Writer writer(&head);
  writer(nonce, epoch, first_, synced, count_,
         static_cast<uint32_t>(bytes_.size() - LogBatchHead::kBytes));
  const uint32_t magic = kBatchMagic, crc = Crc32c(head);
  std::memcpy(bytes_.data(), &magic, 4);
  std::memcpy(bytes_.data() + kBatchCrcAt, &crc, 4);
  std::memcpy(bytes_.data() + kBatchCrcAt + 4, head.data(), head.size());
  bytes_.resize(LogAligned(bytes_.size()));
  return bytes_;
}

std::string LogFileName(const std::string& machine, uint64_t number, LogPosition first) {
  return absl::StrFormat("%s-%08d-%020d.log", machine, number, first.value);
}

std::optional<LogFileNameParts> ParseLogFileName(std::string_view name) {
  constexpr std::string_view kEnd = ".log";
  if (!name.ends_with(kEnd)) return std::nullopt;
  const std::string_view stem = name.substr(0, name.size() - kEnd.size());
  const size_t last = stem.rfind('-');
  if (last == std::string_view::npos || last == 0) return std::nullopt;
  const size_t middle = stem.rfind('-', last - 1);
  if (middle == std::string_view::npos) return std::nullopt;
  LogFileNameParts parts;
  parts.machine = stem.substr(0, middle);
  parts.number = NumberOf(stem.substr(middle + 1, last - middle - 1));
  parts.first = LogPosition(NumberOf(stem.substr(last + 1)));
  if (LogFileName(parts.machine, parts.number, parts.first) != name) return std::nullopt;
  return parts;
}

}  // namespace forebay::storage
