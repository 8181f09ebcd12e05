#include "storage/snapshot_format.h"

#include <charconv>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "codec/archive.h"

namespace forebay::storage {
namespace {

constexpr uint64_t kMagic = 0x50414e5359424f46;        // "FOBYSNAP"
constexpr uint64_t kFooterMagic = 0x444e4559424f46ff;  // "\xffFOBYEND"
constexpr size_t kMachineBytesMax = 64;
constexpr std::string_view kPrefix = "snapshot-";

uint32_t HeadCrc(std::string_view bytes) {
  return Crc32c(bytes.substr(16), Crc32c(bytes.substr(0, 12)));
}

absl::Status Mismatch(absl::string_view what, uint64_t found, uint64_t expected) {
  return absl::DataLossError(absl::StrFormat("%s is %x, expected %x", what, found, expected));
}

}  // namespace

std::string EncodeSnapshotHead(const SnapshotHead& head) {
  FOREBAY_CHECK(head.machine.size() <= kMachineBytesMax);
  std::string bytes;
  codec::Writer writer(&bytes);
  writer(kMagic, kSnapshotFormat, uint32_t{0}, head.position, head.epoch, head.incarnation,
         head.machine);
  bytes.resize(SnapshotHead::kBytes);
  const uint32_t crc = HeadCrc(bytes);
  std::memcpy(bytes.data() + 12, &crc, sizeof(crc));
  return bytes;
}

absl::StatusOr<SnapshotHead> DecodeSnapshotHead(std::string_view bytes) {
  if (bytes.size() < SnapshotHead::kBytes) {
    return absl::DataLossError(
        absl::StrCat("a file of ", bytes.size(), " bytes, its head takes ", SnapshotHead::kBytes));
  }
  bytes = bytes.substr(0, SnapshotHead::kBytes);
  codec::Reader reader(bytes);
  uint64_t magic = 0;
  uint32_t format = 0, crc = 0;
  SnapshotHead head;
  reader(magic, format, crc);
  if (magic != kMagic) return Mismatch("the magic number", magic, kMagic);
  if (format != kSnapshotFormat) return Mismatch("the format", format, kSnapshotFormat);
  if (crc != HeadCrc(bytes)) return Mismatch("the crc of the head", crc, HeadCrc(bytes));
  reader(head.position, head.epoch, head.incarnation, head.machine);
  // Behind the name there is nothing.
  const bool fits = reader.ok() && head.machine.size() <= kMachineBytesMax;
  if (!fits || EncodeSnapshotHead(head) != bytes) {
    return absl::DataLossError("the head contradicts itself");
  }
  return head;
}

// Covers number and length too: neither chunks that changed places nor a length that lies pass.
uint32_t SnapshotTotals::CrcOf(std::string_view chunk) const {
  char before[16];
  const uint64_t size = chunk.size();
  std::memcpy(before, &count_, 8);
  std::memcpy(before + 8, &size, 8);
  return Crc32c(chunk, Crc32c({before, sizeof(before)}));
}

std::string SnapshotTotals::Add(std::string_view chunk) {
  FOREBAY_CHECK(!chunk.empty() && chunk.size() <= kSnapshotChunkBytesMax);
  std::string head;
  codec::Writer writer(&head);
  writer(static_cast<uint32_t>(chunk.size()), CrcOf(chunk));
  ++count_;
  bytes_ += chunk.size();
  crc_ = Crc32c(chunk, crc_);
  return head;
}

absl::StatusOr<uint32_t> SnapshotTotals::BytesOf(std::string_view head) const {
  codec::Reader reader(head);
  SnapshotChunkHead chunk;
  reader(chunk.bytes, chunk.crc);
  if (!reader.ok()) return absl::DataLossError("it ends before its footer");
  if (chunk.bytes > kSnapshotChunkBytesMax) {
    return absl::DataLossError(absl::StrCat("chunk ", count_, " has ", chunk.bytes,
                                            " bytes, at most ", kSnapshotChunkBytesMax));
  }
  if (chunk.bytes == 0 && chunk.crc != CrcOf("")) {
    return Mismatch("the crc of the end's mark", chunk.crc, CrcOf(""));
  }
  return chunk.bytes;
}

absl::Status SnapshotTotals::Check(std::string_view head, std::string_view chunk) {
  SnapshotChunkHead found;
  codec::Reader reader(head);
  reader(found.bytes, found.crc);
  if (found.bytes != chunk.size()) return absl::DataLossError("it ends within a chunk");
  const uint32_t expected = CrcOf(chunk);
  if (found.crc != expected) {
    return Mismatch(absl::StrCat("the crc of chunk ", count_), found.crc, expected);
  }
  ++count_;
  bytes_ += chunk.size();
  crc_ = Crc32c(chunk, crc_);
  return absl::OkStatus();
}

std::string SnapshotTotals::Footer() const {
  std::string footer;
  codec::Writer writer(&footer);
  writer(kFooterMagic, count_, bytes_, crc_);
  writer(Crc32c(footer));
  return footer;
}

std::string SnapshotTotals::End() const {
  std::string end;
  codec::Writer writer(&end);
  writer(uint32_t{0}, CrcOf(""));
  return end + Footer();
}

absl::Status SnapshotTotals::CheckFooter(std::string_view footer) const {
  if (footer == Footer()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("its footer does not say ", count_, " chunks of ", bytes_, " bytes in all"));
}

std::string SnapshotName(LogPosition position) {
  return absl::StrFormat("%s%020d", kPrefix.data(), position.value);
}

std::string UnfinishedSnapshotName(LogPosition position) {
  return absl::StrCat(SnapshotName(position), ".tmp");
}

bool IsUnfinishedSnapshotName(std::string_view name) {
  return name.starts_with(kPrefix) && name.ends_with(".tmp");
}

std::optional<LogPosition> ParseSnapshotName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  LogPosition position;
  name.remove_prefix(kPrefix.size());
  std::from_chars(name.data(), name.data() + name.size(), position.value);
  if (position.value == 0 || SnapshotName(position).substr(kPrefix.size()) != name) {
    return std::nullopt;
  }
  return position;
}

}  // namespace forebay::storage
