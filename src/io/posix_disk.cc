#include "io/posix_disk.h"

#include "base/check.h"
#include "io/refuse.h"

namespace forebay::io {
namespace {

// Every file of a real disk is one; another disk's has no business here.
std::shared_ptr<PosixFile> OwnFile(const FileRef& file) {
  auto own = std::dynamic_pointer_cast<PosixFile>(file);
  FOREBAY_CHECK(own != nullptr);
  return own;
}

Meter::Kind Counted(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kRead:
      return Meter::Kind::kRead;
    case Operation::Kind::kWrite:
      return Meter::Kind::kWrite;
    case Operation::Kind::kWriteSynced:
      return Meter::Kind::kWriteSynced;
    case Operation::Kind::kSync:
      return Meter::Kind::kSync;
    default:
      return Meter::Kind::kOther;
  }
}

bool IsOk(const absl::Status& status) { return status.ok(); }
template <class T>
bool IsOk(const absl::StatusOr<T>& result) {
  return result.ok();
}

}  // namespace

PosixDisk::PosixDisk() : names_(std::make_shared<Workers>(1, "disk-names")) {}

PosixDisk::~PosixDisk() { names_->Stop(); }

void PosixDisk::Accept(std::unique_ptr<Operation> operation) {
  meter_.Start(&operation->ticket);
  Start(std::move(operation));
}

void PosixDisk::Finish(std::unique_ptr<Operation> operation) {
  absl::Status result = operation->Result();
  const size_t moved = operation->moved();
  meter_.Finish(&operation->ticket, Counted(operation->kind()), moved, result.ok());
  if (operation->done) {
    operation->done(std::move(result));
  } else if (result.ok()) {
    operation->done_reading(moved);
  } else {
    operation->done_reading(std::move(result));
  }
  operation.reset();  // the caller's closure and the file go before the disk may
  meter_.Leave();
}

void PosixDisk::Write(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces, Done done) {
  StartWrite(Operation::Kind::kWrite, std::move(file), offset, pieces, std::move(done));
}

void PosixDisk::WriteSynced(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces,
                            Done done) {
  StartWrite(Operation::Kind::kWriteSynced, std::move(file), offset, pieces, std::move(done));
}

void PosixDisk::StartWrite(Operation::Kind kind, FileRef file, uint64_t offset,
                           absl::Span<const ConstBuffer> pieces, Done done) {
  if (auto status = RefuseWrite(*file, offset, pieces); !status.ok()) return done(status);
  auto operation = std::make_unique<Operation>(kind, OwnFile(file), offset);
  for (const ConstBuffer& piece : pieces) {
    operation->AddPiece(const_cast<char*>(piece.data), piece.size);
  }
  operation->done = std::move(done);
  Accept(std::move(operation));
}

void PosixDisk::ReadPieces(FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                           DoneWith<size_t> done) {
  if (auto status = RefuseRead(*file, offset, pieces); !status.ok()) return done(status);
  auto operation = std::make_unique<Operation>(Operation::Kind::kRead, OwnFile(file), offset);
  for (const absl::Span<char> piece : pieces) operation->AddPiece(piece.data(), piece.size());
  operation->done_reading = std::move(done);
  Accept(std::move(operation));
}

void PosixDisk::Sync(FileRef file, Done done) {
  auto operation = std::make_unique<Operation>(Operation::Kind::kSync, OwnFile(file), 0);
  operation->done = std::move(done);
  Accept(std::move(operation));
}

void PosixDisk::Allocate(FileRef file, uint64_t bytes, Done done) {
  if (auto status = RefuseLength("allocate", *file, bytes); !status.ok()) return done(status);
  auto operation = std::make_unique<Operation>(Operation::Kind::kAllocate, OwnFile(file), bytes);
  operation->done = std::move(done);
  Accept(std::move(operation));
}

void PosixDisk::Truncate(FileRef file, uint64_t bytes, Done done) {
  if (auto status = RefuseLength("truncate", *file, bytes); !status.ok()) return done(status);
  auto operation = std::make_unique<Operation>(Operation::Kind::kTruncate, OwnFile(file), bytes);
  operation->done = std::move(done);
  Accept(std::move(operation));
}

template <class Result, class Call>
void PosixDisk::RunOnNames(Call call, absl::AnyInvocable<void(Result)> done) {
  auto ticket = std::make_unique<Meter::Ticket>();
  meter_.Start(ticket.get());
  const bool posted = names_->Post(
      [this, ticket = std::move(ticket), call = std::move(call), done = std::move(done)]() mutable {
        Result result = call();
        meter_.Finish(ticket.get(), Meter::Kind::kOther, 0, IsOk(result));
        done(std::move(result));
        done = nullptr;
        meter_.Leave();
      });
  FOREBAY_CHECK(posted);
}

void PosixDisk::Open(std::string path, OpenOptions options, DoneWith<FileRef> done) {
  RunOnNames<absl::StatusOr<FileRef>>(
      [path = std::move(path), options, names = names_] {
        return OpenPosixFile(path, options, names);
      },
      std::move(done));
}

void PosixDisk::Size(FileRef file, DoneWith<uint64_t> done) {
  RunOnNames<absl::StatusOr<uint64_t>>([file = OwnFile(file)] { return SizeOfFile(*file); },
                                       std::move(done));
}

void PosixDisk::Rename(std::string from, std::string to, Done done) {
  RunOnNames<absl::Status>(
      [from = std::move(from), to = std::move(to)] { return RenameFile(from, to); },
      std::move(done));
}

void PosixDisk::Unlink(std::string path, Done done) {
  RunOnNames<absl::Status>([path = std::move(path)] { return UnlinkFile(path); }, std::move(done));
}

void PosixDisk::MakeDirectory(std::string path, Done done) {
  RunOnNames<absl::Status>([path = std::move(path)] { return MakeDirectories(path); },
                           std::move(done));
}

void PosixDisk::SyncDirectory(std::string path, Done done) {
  RunOnNames<absl::Status>([path = std::move(path)] { return SyncDirectoryEntries(path); },
                           std::move(done));
}

void PosixDisk::List(std::string path, DoneWith<std::vector<Entry>> done) {
  RunOnNames<absl::StatusOr<std::vector<Entry>>>(
      [path = std::move(path)] { return ListFiles(path); }, std::move(done));
}

void PosixDisk::SpaceOf(std::string path, DoneWith<Space> done) {
  RunOnNames<absl::StatusOr<Space>>([path = std::move(path)] { return SpaceAt(path); },
                                    std::move(done));
}

}  // namespace forebay::io
