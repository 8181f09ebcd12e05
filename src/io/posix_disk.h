// What the two real disks share: checks of what comes in, names on a thread of their own, counting,
// and the order of going down.
//
// Thread-safe as Disk says. A derived disk runs Operations: it gets each by Start, and gives it
// back by Finish from a thread of its own. Its destructor calls Drain before it stops its threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/disk.h"
#include "io/meter.h"
#include "io/operation.h"
#include "io/workers.h"

namespace forebay::io {

class PosixDisk : public Disk {
 public:
  ~PosixDisk() override;

  void Write(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces, Done done) final;
  void WriteSynced(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces, Done done) final;
  void ReadPieces(FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                  DoneWith<size_t> done) final;
  void Sync(FileRef file, Done done) final;
  void Allocate(FileRef file, uint64_t bytes, Done done) final;
  void Truncate(FileRef file, uint64_t bytes, Done done) final;

  void Open(std::string path, OpenOptions options, DoneWith<FileRef> done) final;
  void Size(FileRef file, DoneWith<uint64_t> done) final;
  void Rename(std::string from, std::string to, Done done) final;
  void Unlink(std::string path, Done done) final;
  void MakeDirectory(std::string path, Done done) final;
  void SyncDirectory(std::string path, Done done) final;
  void List(std::string path, DoneWith<std::vector<Entry>> done) final;
  void SpaceOf(std::string path, DoneWith<Space> done) final;

  DiskUse use() const final { return meter_.use(); }

 protected:
  PosixDisk();

  // Takes an operation to its end, and then calls Finish; must not block.
  virtual void Start(std::unique_ptr<Operation> operation) = 0;
  // Counts it and tells its caller.
  void Finish(std::unique_ptr<Operation> operation);
  // Waits until every caller was told.
  void Drain() { meter_.AwaitIdle(); }
  Workers& names() { return *names_; }

 private:
  void Accept(std::unique_ptr<Operation> operation);
  void StartWrite(Operation::Kind kind, FileRef file, uint64_t offset,
                  absl::Span<const ConstBuffer> pieces, Done done);
  // Runs `call` on the thread for names and gives its result to `done`.
  template <class Result, class Call>
  void RunOnNames(Call call, absl::AnyInvocable<void(Result)> done);

  Meter meter_;
  const std::shared_ptr<Workers> names_;  // files close on it, and may outlive the disk
};

}  // namespace forebay::io
