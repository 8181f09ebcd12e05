#include "storage/snapshot_writer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "storage/snapshot_file.h"

namespace forebay::storage {

struct SnapshotWriter::Job {
  LogPosition position;
  std::string unfinished, finished;  // paths
  SnapshotPieces pieces;
  Done done;
  SnapshotTotals totals;
  io::FileRef file;
  uint64_t end = 0;     // of what is written
  std::string writing;  // what the disk has
  // Of the piece in `writing`: the heads of its chunks, and all in the file's order.
  std::vector<std::string> heads;
  std::vector<io::ConstBuffer> buffers;

  // Takes the bytes of a piece as chunks.
  void Sum() {
    heads.clear();
    buffers.clear();
    heads.reserve(writing.size() / kSnapshotChunkBytesMax + 1);
    for (std::string_view left = writing; !left.empty();) {
      const std::string_view chunk = left.substr(0, kSnapshotChunkBytesMax);
      const std::string& head = heads.emplace_back(totals.Add(chunk));
      buffers.push_back({head.data(), head.size()});
      buffers.push_back({chunk.data(), chunk.size()});
      left.remove_prefix(chunk.size());
    }
  }
};

SnapshotPieces PiecesOf(std::string bytes, size_t piece_bytes) {
  FOREBAY_CHECK(piece_bytes > 0);
  return [bytes = std::move(bytes), at = size_t{0}, piece_bytes]() mutable -> codec::Piece {
    if (at >= bytes.size()) return nullptr;
    std::string piece = bytes.substr(at, piece_bytes);
    at += piece.size();
    return [piece = std::move(piece)](std::string* to) { to->append(piece); };
  };
}

SnapshotWriter::SnapshotWriter(io::Disk* disk, const LogOptions& options, LogPost post,
                               LogPost encode)
    : disk_(disk),
      directory_(options.directory),
      head_{.machine = options.name, .epoch = options.epoch, .incarnation = options.incarnation},
      post_(std::move(post)),
      encode_(std::move(encode)),
      self_(std::make_shared<SnapshotWriter*>(this)) {}

std::string SnapshotWriter::PathOf(LogPosition position) const {
  return absl::StrCat(directory_, "/", SnapshotName(position));
}

SnapshotWriter::~SnapshotWriter() { *self_ = nullptr; }

io::Disk::Done SnapshotWriter::Then(Step step) {
  return [post = post_, self = self_, job = job_, step](absl::Status status) {
    post([self, job, step, status = std::move(status)] {
      if (*self == nullptr) return;
      status.ok() ? ((*self)->*step)() : (*self)->Finish(status);
    });
  };
}

void SnapshotWriter::Write(LogPosition position, SnapshotPieces pieces, Done done) {
  FOREBAY_CHECK(!busy() && position.value > 0);
  job_ = std::make_shared<Job>();
  job_->position = position;
  job_->unfinished = absl::StrCat(directory_, "/", UnfinishedSnapshotName(position));
  job_->finished = PathOf(position);
  job_->pieces = std::move(pieces);
  job_->done = std::move(done);
  SnapshotHead head = head_;
  head.position = position;
  job_->writing = EncodeSnapshotHead(head);
  // One of an earlier start may be left there.
  disk_->Unlink(job_->unfinished, [](absl::Status) {});
  auto opened = Then(&SnapshotWriter::WriteHead);
  disk_->Open(job_->unfinished, {.mode = io::OpenMode::kCreate},
              [job = job_, opened = std::move(opened)](absl::StatusOr<io::FileRef> file) mutable {
                if (file.ok()) job->file = *std::move(file);
                opened(file.status());
              });
}

void SnapshotWriter::Write(std::string bytes, Step then) {
  job_->writing = std::move(bytes);
  const uint64_t at = job_->end;
  job_->end += job_->writing.size();
  disk_->Write(job_->file, at, {{job_->writing.data(), job_->writing.size()}}, Then(then));
}

void SnapshotWriter::WriteHead() { Write(std::move(job_->writing), &SnapshotWriter::EncodePiece); }

void SnapshotWriter::EncodePiece() {
  codec::Piece piece = job_->pieces();
  if (!piece) return WriteEnd();
  encode_([job = job_, piece = std::move(piece),
           encoded = Then(&SnapshotWriter::WritePiece)]() mutable {
    job->writing.clear();
    piece(&job->writing);
    piece = nullptr;
    job->Sum();
    encoded(absl::OkStatus());
  });
}

void SnapshotWriter::WritePiece() {
  if (job_->writing.empty()) return EncodePiece();
  const uint64_t at = job_->end;
  for (const io::ConstBuffer& buffer : job_->buffers) job_->end += buffer.size;
  disk_->Write(job_->file, at, job_->buffers, Then(&SnapshotWriter::EncodePiece));
}

void SnapshotWriter::WriteEnd() { Write(job_->totals.End(), &SnapshotWriter::Sync); }

void SnapshotWriter::Sync() { disk_->Sync(job_->file, Then(&SnapshotWriter::Rename)); }

void SnapshotWriter::Rename() {
  disk_->Rename(job_->unfinished, job_->finished, Then(&SnapshotWriter::SyncDirectory));
}

void SnapshotWriter::SyncDirectory() {
  disk_->SyncDirectory(directory_, Then(&SnapshotWriter::ListOlder));
}

void SnapshotWriter::ListOlder() {
  last_bytes_ = job_->end;
  disk_->List(directory_,
              [post = post_, self = self_](absl::StatusOr<std::vector<io::Entry>> entries) {
                post([self, entries = std::move(entries)] {
                  if (*self == nullptr) return;
                  // The snapshot is durable, whatever became of the list.
                  (*self)->Finish(entries.ok() ? (*self)->KeepTwo(*entries) : LogPosition(1));
                });
              });
}

LogPosition SnapshotWriter::KeepTwo(const std::vector<io::Entry>& entries) const {
  LogPosition keep_from(1);
  int older = 0;
  for (const LogPosition position : SnapshotsAmong(entries)) {
    if (position >= job_->position) continue;
    if (++older == 1) {
      keep_from = LogPosition(position.value + 1);
    } else {
      disk_->Unlink(absl::StrCat(directory_, "/", SnapshotName(position)),
                    [](absl::Status) {});  // still there, it is found the next time
    }
  }
  return keep_from;
}

void SnapshotWriter::Finish(absl::StatusOr<LogPosition> keep_from) {
  if (!keep_from.ok()) disk_->Unlink(job_->unfinished, [](absl::Status) {});
  const auto job = std::move(job_);
  job_ = nullptr;
  job->done(std::move(keep_from));
}

}  // namespace forebay::storage
