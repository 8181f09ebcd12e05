#include "node/inspect.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "node/command_text.h"
#include "node/read_replica.h"
#include "storage/log_blocking.h"
#include "storage/log_scan.h"

namespace forebay::node {
namespace {

using storage::kRecordHeadBytes;
using storage::kSegmentPage;

std::string_view FileNameIn(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// A file of which a window is in memory.
class Window {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;

  static absl::StatusOr<Window> Open(io::Disk* disk, const std::string& path) {
    storage::Blocking blocking(disk);
    auto file = blocking.Open(path, io::OpenMode::kRead);
    if (!file.ok()) return file.status();
    const auto bytes = blocking.Size(*file);
    if (!bytes.ok()) return bytes.status();
    return Window(blocking, *std::move(file), *bytes);
  }

  uint64_t file_bytes() const { return file_bytes_; }
  // At most `size`, which is at most kBytes; fewer only at the file's end. Good until the next
  // call.
  absl::StatusOr<std::string_view> At(uint64_t offset, size_t size) {
    if (offset >= file_bytes_) return std::string_view();
    size = static_cast<size_t>(std::min<uint64_t>(size, file_bytes_ - offset));
    if (offset < begin_ || offset + size > begin_ + buffer_.size()) {
      buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBytes, file_bytes_ - offset)));
      begin_ = offset;
      const auto read = disk_.Read(file_, offset, absl::MakeSpan(buffer_.data(), buffer_.size()));
      if (!read.ok()) return read.status();
      buffer_.resize(*read);
    }
    return std::string_view(buffer_).substr(offset - begin_, size);
  }

 private:
  Window(storage::Blocking disk, io::FileRef file, uint64_t file_bytes)
      : disk_(std::move(disk)), file_(std::move(file)), file_bytes_(file_bytes) {}

  storage::Blocking disk_;
  io::FileRef file_;
  uint64_t file_bytes_;
  std::string buffer_;
  uint64_t begin_ = 0;
};

class SegmentWalk {
 public:
  using Visit = absl::FunctionRef<void(const SegmentRecord&)>;
  SegmentWalk(Window window, std::string_view name, Visit visit)
      : window_(std::move(window)), visit_(visit) {
    report_.file_bytes = window_.file_bytes();
    const auto parsed = storage::ParseSegmentFileName(name);
    if (parsed.has_value()) number_ = parsed->number;
  }

  absl::StatusOr<SegmentReport> Run() {
    FOREBAY_RETURN_IF_ERROR(ReadHeader());
    uint64_t end = report_.file_bytes;
    FOREBAY_RETURN_IF_ERROR(ReadFooter(&end));
    for (uint64_t at = kSegmentPage; at + kRecordHeadBytes <= end;) {
      const auto next = Look(at, end);
      if (!next.ok()) return next.status();
      at = *next;
    }
    return std::move(report_);
  }

 private:
  absl::Status ReadHeader() {
    const auto page = window_.At(0, kSegmentPage);
    if (!page.ok()) return page.status();
    const auto header = storage::DecodeSegmentHeader(*page);
    if (header.ok()) {
      report_.header = *header;
      number_ = header->name.number;
    } else if (number_ == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(header.status().message(),
                       ", and the file's name is no segment's: which segment it is is not known"));
    } else {
      report_.header_wrong = std::string(header.status().message());
    }
    return absl::OkStatus();
  }

  absl::Status ReadFooter(uint64_t* records_end) {
    const uint64_t file_bytes = report_.file_bytes;
    if (file_bytes < 2 * kSegmentPage) return absl::OkStatus();
    const auto end =
        window_.At(file_bytes - storage::kSegmentTrailerBytes, storage::kSegmentTrailerBytes);
    if (!end.ok()) return end.status();
    const auto trailer = storage::DecodeSegmentTrailer(*end, file_bytes);
    if (absl::IsNotFound(trailer.status())) return absl::OkStatus();
    if (!trailer.ok()) {
      report_.footer_wrong = std::string(trailer.status().message());
      return absl::OkStatus();
    }
    std::string bytes;
    while (bytes.size() < trailer->index_bytes()) {
      const size_t left = trailer->index_bytes() - bytes.size();
      const auto piece =
          window_.At(trailer->index_offset + bytes.size(), std::min(left, Window::kBytes));
      if (!piece.ok()) return piece.status();
      if (piece->empty()) break;  // the file was cut since
      bytes += *piece;
    }
    auto index = storage::DecodeSegmentIndex(bytes, *trailer, number_);
    if (!index.ok()) {
      report_.footer_wrong = std::string(index.status().message());
      return absl::OkStatus();
    }
    report_.sealed = true;
    report_.listed = index->records.size();
    index_ = std::move(index->records);
    *records_end = trailer->index_offset;
    return absl::OkStatus();
  }

  // Looks at `at`, and returns where to go on.
  absl::StatusOr<uint64_t> Look(uint64_t at, uint64_t end) {
    std::optional<storage::RecordHead> listed;
    if (next_ < index_.size() && storage::PlaceOf(index_[next_].id).offset == at) {
      listed = index_[next_++];
    }
    const auto bytes = window_.At(at, kRecordHeadBytes);
    if (!bytes.ok()) return bytes.status();
    const auto head = storage::DecodeRecordHead(*bytes);
    const bool here = head.ok() && storage::PlaceOf(head->id).segment == number_ &&
                      storage::PlaceOf(head->id).offset == at;
    // Between records there may be anything: zeros, or what is left of a torn one.
    if (!here && !listed.has_value()) return at + storage::kRecordAlignment;
    SegmentRecord record{.offset = at,
                         .part = report_.header.part,
                         .head = listed.has_value() ? *listed : *head,
                         .listed = listed.has_value()};
    if (!here) {
      record.wrong =
          head.ok() ? "record head: of another place" : std::string(head.status().message());
    } else if (listed.has_value() && !(*head == *listed)) {
      record.wrong = "record head: not as the index says";
    } else {
      FOREBAY_RETURN_IF_ERROR(Check(end, &record));
    }
    ++report_.records;
    report_.damaged += record.wrong.empty() ? 0 : 1;
    report_.payload_bytes += record.wrong.empty() ? record.head.bytes : 0;
    visit_(record);
    // As the recovery's scan goes on: behind a record that is whole.
    const bool skip = record.listed || record.wrong.empty();
    return at + (skip ? storage::RecordBytes(record.head.bytes) : storage::kRecordAlignment);
  }

  absl::Status Check(uint64_t end, SegmentRecord* record) {
    const uint64_t begin = record->offset + kRecordHeadBytes;
    if (record->head.bytes > end - std::min(begin, end)) {
      record->wrong = "the file ends before the record";
      return absl::OkStatus();
    }
    uint32_t crc = 0;
    header_.clear();
    for (uint64_t done = 0; done < record->head.bytes;) {
      const auto left =
          static_cast<size_t>(std::min<uint64_t>(record->head.bytes - done, Window::kBytes));
      const auto piece = window_.At(begin + done, left);
      if (!piece.ok()) return piece.status();
      if (piece->empty()) break;  // the file was cut since; the crc says so
      crc = Crc32c(*piece, crc);
      if (header_.size() < record->head.header_bytes) {
        header_ += piece->substr(0, record->head.header_bytes - header_.size());
      }
      done += piece->size();
    }
    record->header = header_;
    if (crc != record->head.crc) {
      record->wrong = absl::StrCat("crc ", absl::Hex(crc, absl::kZeroPad8), " of the bytes, ",
                                   absl::Hex(record->head.crc, absl::kZeroPad8), " expected");
    }
    return absl::OkStatus();
  }

  Window window_;
  const Visit visit_;
  SegmentReport report_;
  uint32_t number_ = 0;
  std::vector<storage::RecordHead> index_;
  size_t next_ = 0;
  std::string header_;
};

class LogWalk {
 public:
  using Visit = absl::FunctionRef<void(const LogRecord&)>;
  // `replica`: the log is of a replica of its machine.
  LogWalk(std::string_view file, std::string_view name, bool replica, size_t fields_bytes_max,
          Visit visit)
      : file_(file), replica_(replica), fields_bytes_max_(fields_bytes_max), visit_(visit) {
    report_.file_bytes = file.size();
    if (const auto parts = storage::ParseLogFileName(name)) machine_ = parts->machine;
  }

  absl::StatusOr<LogReport> Run() {
    const auto header = storage::DecodeLogFileHeader(file_);
    if (header.ok()) {
      report_.header = *header;
      machine_ = header->machine;
      Judge();
    } else if (machine_.empty() && !storage::HasLogBatch(file_)) {
      return absl::FailedPreconditionError(absl::StrCat(
          header.status().message(), ", and neither the file's name nor its blocks are a log's"));
    } else {
      report_.header_wrong = std::string(header.status().message());
      report_.end = "corrupt";
      report_.end_why = report_.header_wrong;
    }
    for (uint64_t at = storage::kLogBlock; at < file_.size();) at = LookAtBlock(at);
    return std::move(report_);
  }

 private:
  // As recovery would, if nothing else said what is durable.
  void Judge() {
    const auto scan =
        storage::ScanLogFile(file_, report_.header, LogPosition(),
                             [](LogPosition, std::string_view) { return absl::OkStatus(); });
    report_.synced = scan.synced;
    report_.end_offset = scan.end;
    report_.end_why = std::string(scan.status.message());
    report_.end = scan.how == storage::LogScan::End::kWhole  ? "whole"
                  : scan.how == storage::LogScan::End::kTorn ? "torn"
                                                             : "corrupt";
  }

  uint64_t LookAtBlock(uint64_t at) {
    const auto head = storage::DecodeLogBatchHead(file_.substr(at));
    const bool ours =
        head.ok() && (!report_.header_wrong.empty() || head->nonce == report_.header.nonce);
    if (!ours) {
      // Of many blocks in a row the first is told.
      if (!std::exchange(in_gap_, true)) {
        Tell({.offset = at,
              .batch = at,
              .wrong =
                  head.ok() ? "a batch of another file" : std::string(head.status().message())});
      }
      return at + storage::kLogBlock;
    }
    in_gap_ = false;
    ++report_.batches;
    LookAtRecords(at, *head);
    return at + head->stored();
  }

  void LookAtRecords(uint64_t batch, const storage::LogBatchHead& head) {
    const uint64_t begin = batch + storage::LogBatchHead::kBytes;
    storage::LogRecordReader reader(
        head, file_.substr(std::min<uint64_t>(begin, file_.size()), head.bytes));
    uint64_t at = begin;
    while (true) {
      const LogPosition position = reader.position();
      const auto bytes = reader.Next();
      if (bytes.ok() && !bytes->has_value()) return;
      LogRecord record{.offset = at, .batch = batch, .position = position};
      if (!bytes.ok()) {
        record.wrong = absl::StrCat(bytes.status().message(), "; the rest of its batch is unknown");
        return Tell(std::move(record));
      }
      record.bytes = (*bytes)->size();
      if (auto text = replica_ ? TextOfReplicaRecord(machine_, **bytes, fields_bytes_max_)
                               : TextOfRecord(machine_, **bytes, fields_bytes_max_)) {
        record.command = std::move(text->name);
        record.fields = std::move(text->fields);
      }
      at += kRecordHead + record.bytes;
      Tell(std::move(record));
    }
  }

  void Tell(const LogRecord& record) {
    report_.records += record.position == LogPosition() ? 0 : 1;
    report_.damaged += record.wrong.empty() ? 0 : 1;
    visit_(record);
  }

  static constexpr uint64_t kRecordHead = 8;  // length and crc

  const std::string_view file_;
  const bool replica_;
  const size_t fields_bytes_max_;
  const Visit visit_;
  LogReport report_;
  std::string machine_;
  bool in_gap_ = false;
};

absl::StatusOr<std::string> ReadWhole(Window* window, const std::string& path) {
  if (window->file_bytes() > kInspectedLogBytesMax) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": has ", window->file_bytes(),
                                                      " bytes; no log has more than ",
                                                      kInspectedLogBytesMax));
  }
  std::string file;
  while (file.size() < window->file_bytes()) {
    const auto piece = window->At(file.size(), Window::kBytes);
    if (!piece.ok()) return piece.status();
    if (piece->empty()) break;  // it was cut since
    file += *piece;
  }
  return file;
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<SegmentReport> InspectSegment(io::Disk* disk, const std::string& path,
                                             absl::FunctionRef<void(const SegmentRecord&)> visit) {
  auto window = Window::Open(disk, path);
  if (!window.ok()) return window.status();
  auto report = SegmentWalk(*std::move(window), FileNameIn(path), visit).Run();
  if (!report.ok()) return InFile(path, report.status());
  return report;
}

absl::StatusOr<LogReport> InspectLog(io::Disk* disk, const std::string& path,
                                     size_t fields_bytes_max,
                                     absl::FunctionRef<void(const LogRecord&)> visit) {
  auto window = Window::Open(disk, path);
  if (!window.ok()) return window.status();
  const auto file = ReadWhole(&*window, path);
  if (!file.ok()) return file.status();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const bool replica = IsReplica(storage::Blocking(disk), folder);
  auto report = LogWalk(*file, FileNameIn(path), replica, fields_bytes_max, visit).Run();
  if (!report.ok()) return InFile(path, report.status());
  return report;
}

}  // namespace forebay::node
