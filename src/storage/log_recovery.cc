#include "storage/log_recovery.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "storage/log_files.h"
#include "storage/log_format.h"
#include "storage/log_mark.h"
#include "storage/log_scan.h"
#include "storage/snapshot_file.h"

namespace forebay::storage {
namespace {

// Reads a damaged file once more: what the memory or the bus did to it is no reason to cut.
constexpr int kReadsMax = 2;

class Recovery {
 public:
  Recovery(Blocking disk, const std::string& directory, const std::string& machine,
           const LogSink& sink)
      : disk_(std::move(disk)), directory_(directory), machine_(machine), sink_(sink) {}

  absl::StatusOr<RecoveredLog> Run() {
    const auto entries = disk_.List(directory_);
    if (!entries.ok()) return entries.status();
    auto files = LogFilesAmong(*entries, machine_);
    if (!files.ok()) return files.status();
    files_ = *std::move(files);
    FOREBAY_RETURN_IF_ERROR(TakeMark(*entries));
    FOREBAY_RETURN_IF_ERROR(TakeSnapshot(*entries));
    FOREBAY_RETURN_IF_ERROR(DropFilesBelow());
    for (size_t i = 0; i < files_.size(); ++i) FOREBAY_RETURN_IF_ERROR(TakeFile(i));
    for (const io::Entry& entry : *entries) {
      if (!IsUnfinishedSnapshotName(entry.name)) continue;
      FOREBAY_RETURN_IF_ERROR(disk_.Unlink(absl::StrCat(directory_, "/", entry.name)));
    }
    // Not to be taken for one that can stand in for another.
    for (const std::string& path : damaged_) {
      FOREBAY_RETURN_IF_ERROR(disk_.Rename(path, path + ".damaged"));
    }
    return std::move(result_);
  }

 private:
  struct Scanned {
    io::FileRef file;
    std::string_view bytes;  // in buffer_
    std::optional<LogScan> scan;
  };

  std::string PathOf(const LogFileNameParts& file) const {
    return absl::StrCat(directory_, "/", LogFileName(machine_, file.number, file.first));
  }
  absl::Status Corrupt(const std::string& path, uint64_t offset, absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(
        "the log of ", machine_, " is corrupt: ", path, " at offset ", offset, ": ", what,
        ". It was synced once, so this is no torn tail; nothing was changed. Check the disk, copy "
        "the directory aside, and bring this file back from a copy or another replica. A machine "
        "cannot start without what the others know of it: a new run needs a new directory."));
  }

  absl::Status BeforeCut(const std::string& torn) const {
    return sink_.before_cut ? sink_.before_cut(torn) : absl::OkStatus();
  }

  absl::Status TakeMark(const std::vector<io::Entry>& entries);
  absl::Status TakeSnapshot(const std::vector<io::Entry>& entries);
  absl::Status DropFilesBelow();
  absl::Status TakeFile(size_t index);
  absl::StatusOr<Scanned> ScanFile(size_t index, absl::Status* why);
  absl::Status CheckHeader(const LogFileNameParts& file, const LogFileHeader& header) const;
  LogScan Scan(std::string_view bytes, const LogFileHeader& header, LogPosition synced);
  absl::Status RemoveUnborn(const LogFileNameParts& file, const absl::Status& why);
  absl::Status EndLast(const std::string& path, const Scanned& scanned);
  absl::StatusOr<std::string_view> Read(const io::FileRef& file);

  Blocking disk_;
  const std::string& directory_;
  const std::string& machine_;
  const LogSink& sink_;
  std::vector<LogFileNameParts> files_;  // those that are needed
  std::vector<std::string> damaged_;     // snapshots
  LogPosition synced_;                   // by the mark and the snapshots' names
  std::string buffer_;                   // a file
  RecoveredLog result_{.next = LogPosition(1)};
};

// One that is not right says nothing: a crash may have come while it was written.
absl::Status Recovery::TakeMark(const std::vector<io::Entry>& entries) {
  const auto is_mark = [](const io::Entry& entry) { return entry.name == kLogMarkName; };
  if (std::none_of(entries.begin(), entries.end(), is_mark)) return absl::OkStatus();
  const std::string path = absl::StrCat(directory_, "/", kLogMarkName);
  const auto file = disk_.Open(path, io::OpenMode::kRead);
  if (!file.ok()) return file.status();
  std::string bytes(kLogBlock, '\0');
  const auto read = disk_.Read(*file, 0, absl::MakeSpan(bytes));
  if (!read.ok()) return read.status();
  const auto mark = DecodeLogMark(std::string_view(bytes).substr(0, *read), machine_);
  if (mark.ok()) {
    synced_ = *mark;
  } else {
    result_.notes.push_back(absl::StrCat("passed over ", path, ": ", mark.status().message()));
  }
  return absl::OkStatus();
}

absl::Status Recovery::TakeSnapshot(const std::vector<io::Entry>& entries) {
  const std::vector<LogPosition> positions = SnapshotsAmong(entries);
  if (!positions.empty()) synced_ = std::max(synced_, positions.front());
  for (const LogPosition position : positions) {
    SnapshotReader reader(disk_, directory_, machine_, position);
    if (auto status = reader.Check(); !status.ok()) {
      if (!absl::IsDataLoss(status)) return status;
      result_.notes.push_back(absl::StrCat("passed over a snapshot: ", status.message()));
      damaged_.push_back(absl::StrCat(directory_, "/", SnapshotName(position)));
      continue;
    }
    FOREBAY_RETURN_IF_ERROR(sink_.begin_snapshot(position, reader.chunk_bytes()));
    FOREBAY_RETURN_IF_ERROR(reader.Stream(sink_.chunk));
    FOREBAY_RETURN_IF_ERROR(sink_.end_snapshot());
    result_.snapshot = position;
    result_.next = LogPosition(position.value + 1);
    result_.snapshot_bytes = reader.bytes();
    result_.bytes += result_.snapshot_bytes;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Keeps the file that has the first record needed, and those after it.
absl::Status Recovery::DropFilesBelow() {
  size_t first = files_.size();
  while (first > 0 && (first == files_.size() || files_[first].first > result_.next)) --first;
  if (files_.empty() || files_[first].first > result_.next) {
    if (files_.empty() && synced_.value == 0) return absl::OkStatus();  // a new machine
    std::string what = absl::StrCat("no file has record ", result_.next.value);
    for (const std::string& note : result_.notes) absl::StrAppend(&what, "; ", note);
    return Corrupt(files_.empty() ? directory_ : PathOf(files_.front()), 0, what);
  }
  files_.erase(files_.begin(), files_.begin() + static_cast<ptrdiff_t>(first));
  result_.file_number = files_.back().number + 1;
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> Recovery::Read(const io::FileRef& file) {
  const auto size = disk_.Size(file);
  if (!size.ok()) return size.status();
  if (*size > buffer_.size()) buffer_.resize(*size);  // never smaller: the next file reuses it
  const auto read = disk_.Read(file, 0, absl::MakeSpan(buffer_.data(), *size));
  if (!read.ok()) return read.status();
  result_.bytes += *read;
  return std::string_view(buffer_).substr(0, *read);
}

LogScan Recovery::Scan(std::string_view bytes, const LogFileHeader& header, LogPosition synced) {
  return ScanLogFile(bytes, header, synced,
                     [this](LogPosition position, std::string_view record) -> absl::Status {
                       if (position < result_.next) return absl::OkStatus();
                       FOREBAY_RETURN_IF_ERROR(sink_.record(position, record));
                       ++result_.records;
                       ++result_.next.value;
                       return absl::OkStatus();
                     });
}

// Reads and scans until the file is right or was read twice. No scan if its header is not right;
// `why` says then what is wrong.
absl::StatusOr<Recovery::Scanned> Recovery::ScanFile(size_t index, absl::Status* why) {
  const LogFileNameParts& name = files_[index];
  const bool last = index + 1 == files_.size();
  // That a file follows says that all of this one was synced.
  const LogPosition synced = last ? synced_ : LogPosition(files_[index + 1].first.value - 1);
  auto file = disk_.Open(PathOf(name), last ? io::OpenMode::kWrite : io::OpenMode::kRead);
  if (!file.ok()) return file.status();
  Scanned scanned;
  for (int reads = 1; reads <= kReadsMax; ++reads) {
    const auto bytes = Read(*file);
    if (!bytes.ok()) return bytes.status();
    scanned = Scanned{*file, *bytes, std::nullopt};
    const auto header = DecodeLogFileHeader(*bytes);
    if (!header.ok()) {
      *why = header.status();
      continue;
    }
    FOREBAY_RETURN_IF_ERROR(CheckHeader(name, *header));
    scanned.scan = Scan(scanned.bytes, *header, synced);
    if (scanned.scan->how == LogScan::End::kRefused) return scanned.scan->status;
    if (scanned.scan->how == LogScan::End::kWhole) break;
  }
  return scanned;
}

absl::Status Recovery::TakeFile(size_t index) {
  const std::string path = PathOf(files_[index]);
  const bool last = index + 1 == files_.size();
  absl::Status why;
  auto scanned = ScanFile(index, &why);
  if (!scanned.ok()) return scanned.status();
  if (!scanned->scan.has_value()) {
    const bool synced = synced_ >= files_[index].first;
    if (!last || synced || HasLogBatch(scanned->bytes)) return Corrupt(path, 0, why.message());
    FOREBAY_RETURN_IF_ERROR(BeforeCut(absl::StrCat(path, " at offset 0: ", why.message())));
    return RemoveUnborn(files_[index], why);
  }
  const LogScan& scan = *scanned->scan;
  if (scan.how == LogScan::End::kCorrupt) {
    if (!last && scan.end == scanned->bytes.size() &&
        files_[index + 1].number != files_[index].number + 1) {
      return Corrupt(PathOf(files_[index + 1]), 0,
                     absl::StrCat("its number follows ", files_[index].number,
                                  ": a file in between is missing"));
    }
    return Corrupt(path, scan.end, scan.status.message());
  }
  if (last) return EndLast(path, *scanned);
  const LogPosition follower = files_[index + 1].first;
  if (scan.next != follower) {
    return Corrupt(path, scan.end,
                   absl::StrCat("it goes on to record ", scan.next.value - 1,
                                ", and the next file begins with record ", follower.value));
  }
  if (scan.how == LogScan::End::kTorn) {
    result_.notes.push_back(
        absl::StrCat(path, " at offset ", scan.end, ": passed over bytes after the last record"));
  }
  return absl::OkStatus();
}

absl::Status Recovery::CheckHeader(const LogFileNameParts& file,
                                   const LogFileHeader& header) const {
  if (header.machine != machine_) {
    return absl::FailedPreconditionError(absl::StrCat(
        PathOf(file), " is of ", header.machine, ", not of ", machine_,
        "; each has a directory of its own: look whether the configured one is right"));
  }
  if (header.number != file.number || header.first != file.first) {
    return Corrupt(PathOf(file), 0,
                   absl::StrCat("its header is that of ",
                                LogFileName(header.machine, header.number, header.first)));
  }
  return absl::OkStatus();
}

// A header is synced before the first batch is written: without one, nothing was ever acknowledged
// from this file.
absl::Status Recovery::RemoveUnborn(const LogFileNameParts& file, const absl::Status& why) {
  result_.notes.push_back(
      absl::StrCat("removed ", PathOf(file), ", which was being created: ", why.message()));
  result_.file_number = file.number;
  return disk_.Unlink(PathOf(file));
}

// Cuts what is torn, and makes durable what was read. The last batch may never have been synced, or
// its sync may have failed, after which the kernel takes pages for clean that never reached the
// disk: so it is written once more. Everything before it was synced before it was written.
absl::Status Recovery::EndLast(const std::string& path, const Scanned& scanned) {
  const LogScan& scan = *scanned.scan;
  if (scan.how == LogScan::End::kTorn) {
    FOREBAY_RETURN_IF_ERROR(
        BeforeCut(absl::StrCat(path, " at offset ", scan.end, ": ", scan.status.message())));
    const uint64_t cut = scanned.bytes.size() - scan.end;
    result_.tail_cut = true;
    result_.notes.push_back(absl::StrCat("cut ", cut, " bytes of a torn tail of ", path,
                                         " at offset ", scan.end, ": ", scan.status.message()));
    FOREBAY_RETURN_IF_ERROR(disk_.Truncate(scanned.file, scan.end));
  }
  const std::string_view again = scanned.bytes.substr(scan.last_batch, scan.end - scan.last_batch);
  FOREBAY_RETURN_IF_ERROR(disk_.Write(scanned.file, scan.last_batch, again));
  return disk_.Sync(scanned.file);
}

}  // namespace

absl::StatusOr<RecoveredLog> RecoverLog(Blocking disk, const std::string& directory,
                                        const std::string& machine, const LogSink& sink) {
  const auto begin = std::chrono::steady_clock::now();
  auto recovered = Recovery(std::move(disk), directory, machine, sink).Run();
  if (!recovered.ok()) return recovered;
  recovered->seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return recovered;
}

}  // namespace forebay::storage
