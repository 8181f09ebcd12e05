#include "storage/snapshot_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::storage {
namespace {

constexpr size_t kReadBytes = size_t{4} << 20;

}  // namespace

std::vector<LogPosition> SnapshotsAmong(const std::vector<io::Entry>& entries) {
  std::vector<LogPosition> positions;
  for (const io::Entry& entry : entries) {
    if (const auto position = ParseSnapshotName(entry.name)) positions.push_back(*position);
  }
  std::sort(positions.rbegin(), positions.rend());
  return positions;
}

SnapshotReader::SnapshotReader(Blocking disk, const std::string& directory,
                               const std::string& machine, LogPosition position)
    : disk_(std::move(disk)),
      path_(absl::StrCat(directory, "/", SnapshotName(position))),
      machine_(machine),
      position_(position) {}

absl::Status SnapshotReader::Damaged(uint64_t offset, absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(path_, " at offset ", offset, ": ", what));
}

absl::StatusOr<std::string_view> SnapshotReader::Next(const io::FileRef& file, uint64_t offset,
                                                      size_t size) {
  if (offset < buffer_at_ || offset + size > buffer_at_ + buffer_end_) {
    // What is there of it stays.
    const bool begun = offset >= buffer_at_ && offset < buffer_at_ + buffer_end_;
    const size_t kept = begun ? buffer_at_ + buffer_end_ - offset : 0;
    std::memmove(buffer_.data(), buffer_.data() + (buffer_end_ - kept), kept);
    if (buffer_.size() < std::max(kReadBytes, size)) buffer_.resize(std::max(kReadBytes, size));
    buffer_at_ = offset;
    buffer_end_ = kept;
    const auto read = disk_.Read(file, offset + kept,
                                 absl::MakeSpan(buffer_.data() + kept, buffer_.size() - kept));
    if (!read.ok()) return read.status();
    buffer_end_ += *read;
    bytes_ += *read;
  }
  return std::string_view(buffer_).substr(0, buffer_end_).substr(offset - buffer_at_, size);
}

absl::Status SnapshotReader::CheckHead(std::string_view bytes) const {
  const auto head = DecodeSnapshotHead(bytes);
  if (!head.ok()) return Damaged(0, head.status().message());
  if (head->machine != machine_) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " is of ", head->machine, ", not of ", machine_,
        "; each has a directory of its own: look whether the configured one is right"));
  }
  if (head->position != position_) {
    return Damaged(0, absl::StrCat("its head says position ", head->position.value));
  }
  return absl::OkStatus();
}

absl::Status SnapshotReader::Pass(const std::function<absl::Status(std::string_view chunk)>& sink) {
  const auto file = disk_.Open(path_, io::OpenMode::kRead);
  if (!file.ok()) return file.status();
  buffer_at_ = buffer_end_ = 0;
  const auto head = Next(*file, 0, SnapshotHead::kBytes);
  if (!head.ok()) return head.status();
  FOREBAY_RETURN_IF_ERROR(CheckHead(*head));
  uint64_t at = SnapshotHead::kBytes;
  SnapshotTotals totals;
  while (true) {
    const auto found = Next(*file, at, SnapshotChunkHead::kBytes);
    if (!found.ok()) return found.status();
    const std::string chunk_head(*found);  // the next read may take the buffer
    const auto size = totals.BytesOf(chunk_head);
    if (!size.ok()) return Damaged(at, size.status().message());
    at += SnapshotChunkHead::kBytes;
    if (*size == 0) break;
    const auto chunk = Next(*file, at, *size);
    if (!chunk.ok()) return chunk.status();
    if (auto status = totals.Check(chunk_head, *chunk); !status.ok()) {
      return Damaged(at, status.message());
    }
    if (sink) FOREBAY_RETURN_IF_ERROR(sink(*chunk));
    at += *size;
  }
  const auto footer = Next(*file, at, SnapshotTotals::kFooterBytes + 1);
  if (!footer.ok()) return footer.status();
  if (auto status = totals.CheckFooter(*footer); !status.ok()) {
    return Damaged(at, status.message());
  }
  chunk_bytes_ = totals.bytes();
  return absl::OkStatus();
}

absl::Status SnapshotReader::Check() {
  absl::Status status = Pass(nullptr);
  // Once more: what the memory or the bus did to it is no damage of the file.
  if (absl::IsDataLoss(status)) status = Pass(nullptr);
  return status;
}

absl::Status SnapshotReader::Stream(
    const std::function<absl::Status(std::string_view chunk)>& sink) {
  return Pass(sink);
}

}  // namespace forebay::storage
