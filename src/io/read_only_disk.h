// A disk of which nothing is changed: what reads goes to the disk below, what would change anything
// is answered as if it were done. What a start would do to a directory can be tried on it.
//
// Answers of the latter kind come before the call returns. A file that is to be made is refused
// (EROFS). Thread-safe; the disk below outlives it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/disk.h"

namespace forebay::io {

class ReadOnlyDisk final : public Disk {
 public:
  explicit ReadOnlyDisk(Disk* below) : below_(below) {}

  std::string_view name() const override { return below_->name(); }
  DiskUse use() const override { return below_->use(); }

  void ReadPieces(FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                  DoneWith<size_t> done) override {
    below_->ReadPieces(std::move(file), offset, std::move(pieces), std::move(done));
  }
  void Size(FileRef file, DoneWith<uint64_t> done) override {
    below_->Size(std::move(file), std::move(done));
  }
  void List(std::string path, DoneWith<std::vector<Entry>> done) override {
    below_->List(std::move(path), std::move(done));
  }
  void SpaceOf(std::string path, DoneWith<Space> done) override {
    below_->SpaceOf(std::move(path), std::move(done));
  }
  void Open(std::string path, OpenOptions options, DoneWith<FileRef> done) override;

  void Write(FileRef, uint64_t, std::vector<ConstBuffer>, Done done) override { Pretend(done); }
  void WriteSynced(FileRef, uint64_t, std::vector<ConstBuffer>, Done done) override {
    Pretend(done);
  }
  void Sync(FileRef, Done done) override { Pretend(done); }
  void Allocate(FileRef, uint64_t, Done done) override { Pretend(done); }
  void Truncate(FileRef, uint64_t, Done done) override { Pretend(done); }
  void Rename(std::string, std::string, Done done) override { Pretend(done); }
  void Unlink(std::string, Done done) override { Pretend(done); }
  void MakeDirectory(std::string, Done done) override { Pretend(done); }
  void SyncDirectory(std::string, Done done) override { Pretend(done); }

 private:
  static void Pretend(Done& done) { done(absl::OkStatus()); }

  Disk* const below_;
};

}  // namespace forebay::io
