#include "storage/log_writer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/prng.h"
#include "storage/log_files.h"

namespace forebay::storage {

struct LogWriter::Flight {
  std::unique_ptr<LogBatchBuilder> batch;
  std::string_view bytes;
  LogPosition last;
};

struct LogWriter::NewFile {
  io::Disk* disk;
  std::string directory, path;
  LogFileHeader header;
  std::string block;  // the header's bytes
  io::FileRef file;
  LogPost post;
  std::shared_ptr<LogWriter*> self;
};

LogWriter::LogWriter(io::Disk* disk, LogOptions options, LogPosition next, uint64_t file_number,
                     LogPost post, LogEvents events)
    : disk_(disk),
      options_(std::move(options)),
      post_(std::move(post)),
      events_(std::move(events)),
      self_(std::make_shared<LogWriter*>(this)),
      appended_(next.value - 1),
      durable_(appended_),
      file_number_(file_number - 1) {
  FOREBAY_CHECK(next.value > 0 && file_number > 0);
}

LogWriter::~LogWriter() { *self_ = nullptr; }

absl::AnyInvocable<void()> LogWriter::Alive(const std::shared_ptr<LogWriter*>& self,
                                            absl::AnyInvocable<void(LogWriter&)> work) {
  return [self, work = std::move(work)]() mutable {
    if (*self != nullptr) work(**self);
  };
}

void LogWriter::Append(LogPosition position, std::string_view record) {
  FOREBAY_CHECK(position.value == appended_.value + 1);
  appended_ = position;
  if (!status_.ok()) return;
  if (waiting_.empty() || waiting_.back()->bytes() + record.size() > options_.batch_bytes_max) {
    waiting_.push_back(spare_ != nullptr ? std::move(spare_) : std::make_unique<LogBatchBuilder>());
    pending_bytes_ += waiting_.back()->bytes();
  }
  pending_bytes_ -= waiting_.back()->bytes();
  waiting_.back()->Add(position, record);
  pending_bytes_ += waiting_.back()->bytes();
  if (busy_ != Busy::kNo || begin_posted_) return;
  // Not at once: what the owner appends in the same turn shares the sync.
  begin_posted_ = true;
  post_(Alive(self_, [](LogWriter& writer) {
    writer.begin_posted_ = false;
    writer.Begin();
  }));
}

void LogWriter::Begin() {
  FOREBAY_CHECK(busy_ == Busy::kNo);
  if (!status_.ok() || waiting_.empty()) return;
  // The first one too comes with its first batch: a start that appends nothing leaves no file.
  if (file_ == nullptr || file_end_ >= options_.file_bytes) {
    CreateFile(LogPosition(durable_.value + 1));
  } else {
    WriteBatch();
  }
}

// --- files ---

// All that was appended to the last file is durable: that a file exists says so of those before it.
void LogWriter::CreateFile(LogPosition first) {
  busy_ = Busy::kCreating;
  auto created = std::make_shared<NewFile>();
  created->disk = disk_;
  created->directory = options_.directory;
  created->header = {.machine = options_.name,
                     .number = file_number_ + 1,
                     .epoch = options_.epoch,
                     .incarnation = options_.incarnation,
                     .nonce = Mix64(options_.nonce + file_number_ + 1),
                     .first = first};
  created->path =
      absl::StrCat(options_.directory, "/", LogFileName(options_.name, file_number_ + 1, first));
  created->block = EncodeLogFileHeader(created->header);
  created->post = post_;
  created->self = self_;
  disk_->Open(created->path, {.mode = io::OpenMode::kCreate},
              [created](absl::StatusOr<io::FileRef> file) {
                if (!file.ok()) return Answer(created, file.status());
                created->file = *std::move(file);
                WriteHeader(created);
              });
}

// The header is synced before the first batch is written: a batch vouches for its file's header.
void LogWriter::WriteHeader(const std::shared_ptr<NewFile>& created) {
  created->disk->WriteSynced(created->file, 0, {{created->block.data(), created->block.size()}},
                             [created](absl::Status status) {
                               if (!status.ok()) return Answer(created, std::move(status));
                               SyncEntry(created);
                             });
}

void LogWriter::SyncEntry(const std::shared_ptr<NewFile>& created) {
  created->disk->SyncDirectory(
      created->directory, [created](absl::Status status) { Answer(created, std::move(status)); });
}

void LogWriter::Answer(const std::shared_ptr<NewFile>& created, absl::Status status) {
  created->post(Alive(created->self, [created, status = std::move(status)](LogWriter& writer) {
    writer.Created(*created, status);
  }));
}

void LogWriter::Created(const NewFile& created, absl::Status status) {
  busy_ = Busy::kNo;
  if (!status.ok()) return Fail(std::move(status));
  file_ = created.file;
  file_number_ = created.header.number;
  file_nonce_ = created.header.nonce;
  file_end_ = kLogBlock;
  ++use_.files;
  Begin();
}

// --- batches ---

void LogWriter::WriteBatch() {
  busy_ = Busy::kWriting;
  auto flight = std::make_shared<Flight>();
  flight->batch = std::move(waiting_.front());
  waiting_.pop_front();
  flight->last = flight->batch->last();
  use_.records += flight->batch->count();
  pending_bytes_ -= flight->batch->bytes();
  flight->bytes = flight->batch->Finish(file_nonce_, options_.epoch, durable_);
  pending_bytes_ += flight->bytes.size();
  disk_->WriteSynced(file_, file_end_, {{flight->bytes.data(), flight->bytes.size()}},
                     [post = post_, self = self_, flight](absl::Status status) {
                       post(Alive(self, [flight, status = std::move(status)](LogWriter& writer) {
                         writer.Written(*flight, status);
                       }));
                     });
}

void LogWriter::Written(Flight& flight, absl::Status status) {
  busy_ = Busy::kNo;
  if (!status.ok()) return Fail(std::move(status));
  file_end_ += flight.bytes.size();
  pending_bytes_ -= flight.bytes.size();
  durable_ = flight.last;
  ++use_.batches;
  use_.bytes += flight.bytes.size();
  if (flight.bytes.size() <= 2 * options_.batch_bytes_max) {
    flight.batch->Clear();
    spare_ = std::move(flight.batch);
  }
  Begin();  // before the callback, which may take long or end the writer
  if (events_.on_durable) events_.on_durable();
}

void LogWriter::Fail(absl::Status status) {
  status_ = std::move(status);
  waiting_.clear();
  pending_bytes_ = 0;
  if (events_.on_failed) events_.on_failed(status_);
}

void LogWriter::LookForFile() {
  if (!status_.ok() || file_ == nullptr || looking_) return;
  looking_ = true;
  const std::string path = file_->path();
  disk_->Open(path, {.mode = io::OpenMode::kRead},
              [post = post_, self = self_, path](const absl::StatusOr<io::FileRef>& file) {
                const int error = io::ErrorOf(file.status());
                const bool gone = error == ENOENT || error == ENOTDIR || error == ESTALE;
                post(Alive(self, [path, gone](LogWriter& writer) {
                  writer.looking_ = false;
                  // Another file may have followed, and a snapshot made this one superfluous.
                  if (!gone || !writer.status_.ok() || writer.file_->path() != path) return;
                  writer.Fail(absl::DataLossError(
                      absl::StrCat(path, " is not there any more: ", writer.options_.directory,
                                   " was deleted or moved away while it was written")));
                }));
              });
}

// --- truncation ---

void LogWriter::TruncateBefore(LogPosition position) {
  // Only files that a durable one follows: one that is being created does not count yet.
  UnlinkLogFilesBefore(disk_, options_.directory, options_.name, position, file_number_);
}

}  // namespace forebay::storage
