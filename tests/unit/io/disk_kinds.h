// The disks that the shared tests run over, each with a folder of its own and calls that wait.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "io/disk.h"
#include "io/memory_disk.h"
#include "io/pool_disk.h"

namespace forebay::io {

// Waits for so many answers. (Notification would do, but ThreadSanitizer does not see it.)
class Answers {
 public:
  explicit Answers(int expected = 1) : left_(expected) {}
  void Count() {
    std::lock_guard lock(mutex_);
    EXPECT_GT(left_, 0) << "answered once more";
    --left_;
    changed_.notify_all();
  }
  bool complete() const {
    std::lock_guard lock(mutex_);
    return left_ <= 0;
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return left_ <= 0; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

// A new folder, removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "forebay-io-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct PoolKind {
  static std::unique_ptr<Disk> New(const DiskOptions& options = {}) {
    return std::make_unique<PoolDisk>(options);
  }
  const std::string& path() const { return folder.path(); }
  void Pump(const Answers&) {}

  ScratchFolder folder;
  std::unique_ptr<Disk> disk = New();
};

// Where io_uring is refused, as in many containers, these tests say so and run over what the daemon
// would run on there.
struct UringKind {
  static std::unique_ptr<Disk> New(const DiskOptions& options = {}) {
    std::string why;
    auto disk = NewDisk(options, &why);
    if (disk->name() != "io_uring") std::cerr << why << "\n";
    return disk;
  }
  const std::string& path() const { return folder.path(); }
  void Pump(const Answers&) {}

  ScratchFolder folder;
  std::unique_ptr<Disk> disk = New();
};

struct MemoryKind {
  MemoryKind() {
    MemoryVolume::Event folder{.kind = MemoryVolume::Event::Kind::kMakeDirectory};
    folder.path = path();
    volume->Apply(folder);
    disk = New();
  }
  std::unique_ptr<Disk> New(const DiskOptions& = {}) {
    return std::make_unique<MemoryDisk>(
        volume, time.time(), MemoryDiskOptions{.seed = 7, .delay_least_ms = 1, .delay_most_ms = 9});
  }
  const std::string& path() const { return path_; }
  void Pump(const Answers& done) {
    while (!done.complete()) ASSERT_TRUE(time.RunOne());
  }

  const std::string path_ = "/scratch";
  ManualTime time;
  std::shared_ptr<MemoryVolume> volume = std::make_shared<MemoryVolume>();
  std::unique_ptr<Disk> disk;
};

// Memory for direct access.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(size_t size, char fill = 0) : size_(size) {
    data_ = static_cast<char*>(std::aligned_alloc(kAlignment, size));
    std::fill_n(data_, size, fill);
  }
  ~AlignedBuffer() { std::free(data_); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  char* data() { return data_; }
  absl::Span<char> span() { return {data_, size_}; }

 private:
  size_t size_;
  char* data_;
};

template <class Kind>
class DiskTest : public testing::Test {
 protected:
  Disk& disk() { return *kind_.disk; }
  std::string In(const std::string& name) { return kind_.path() + "/" + name; }

  // Calls `start` with a Done or DoneWith<T>, and waits for the answer.
  template <class T, class Start>
  T Await(Start start) {
    Answers answers;
    T result{absl::UnknownError("never answered")};
    start([&](T answer) {
      result = std::move(answer);
      answers.Count();
    });
    kind_.Pump(answers);
    answers.Wait();
    return result;
  }

  absl::StatusOr<FileRef> Open(const std::string& path, OpenMode mode, bool direct = false) {
    return Await<absl::StatusOr<FileRef>>(
        [&](auto done) { disk().Open(path, {.mode = mode, .direct = direct}, std::move(done)); });
  }
  FileRef Create(const std::string& name, bool direct = false) {
    auto file = Open(In(name), OpenMode::kCreate, direct);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *file : nullptr;
  }
  absl::Status WritePieces(const FileRef& file, uint64_t offset, std::vector<ConstBuffer> pieces) {
    return Await<absl::Status>(
        [&](auto done) { disk().Write(file, offset, std::move(pieces), std::move(done)); });
  }
  absl::Status Write(const FileRef& file, uint64_t offset, const std::string& bytes) {
    return WritePieces(file, offset, {{bytes.data(), bytes.size()}});
  }
  absl::Status WriteSynced(const FileRef& file, uint64_t offset, const std::string& bytes) {
    return Await<absl::Status>([&](auto done) {
      disk().WriteSynced(file, offset, {{bytes.data(), bytes.size()}}, std::move(done));
    });
  }
  absl::StatusOr<size_t> ReadPieces(const FileRef& file, uint64_t offset,
                                    std::vector<absl::Span<char>> pieces) {
    return Await<absl::StatusOr<size_t>>(
        [&](auto done) { disk().ReadPieces(file, offset, std::move(pieces), std::move(done)); });
  }
  absl::StatusOr<size_t> ReadInto(const FileRef& file, uint64_t offset, absl::Span<char> to) {
    return Await<absl::StatusOr<size_t>>(
        [&](auto done) { disk().Read(file, offset, to, std::move(done)); });
  }
  absl::StatusOr<std::string> Read(const FileRef& file, uint64_t offset, size_t size) {
    std::string bytes(size, '?');
    auto read = ReadInto(file, offset, absl::MakeSpan(bytes.data(), size));
    if (!read.ok()) return read.status();
    bytes.resize(*read);
    return bytes;
  }
  absl::Status Sync(const FileRef& file) {
    return Await<absl::Status>([&](auto done) { disk().Sync(file, std::move(done)); });
  }
  absl::Status Allocate(const FileRef& file, uint64_t bytes) {
    return Await<absl::Status>([&](auto done) { disk().Allocate(file, bytes, std::move(done)); });
  }
  absl::Status Truncate(const FileRef& file, uint64_t bytes) {
    return Await<absl::Status>([&](auto done) { disk().Truncate(file, bytes, std::move(done)); });
  }
  absl::StatusOr<uint64_t> Size(const FileRef& file) {
    return Await<absl::StatusOr<uint64_t>>([&](auto done) { disk().Size(file, std::move(done)); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) {
    return Await<absl::Status>(
        [&](auto done) { disk().Rename(In(from), In(to), std::move(done)); });
  }
  absl::Status Unlink(const std::string& name) {
    return Await<absl::Status>([&](auto done) { disk().Unlink(In(name), std::move(done)); });
  }
  absl::Status MakeDirectory(const std::string& path) {
    return Await<absl::Status>([&](auto done) { disk().MakeDirectory(path, std::move(done)); });
  }
  absl::Status SyncDirectory(const std::string& path) {
    return Await<absl::Status>([&](auto done) { disk().SyncDirectory(path, std::move(done)); });
  }
  absl::StatusOr<std::vector<Entry>> List(const std::string& path) {
    return Await<absl::StatusOr<std::vector<Entry>>>(
        [&](auto done) { disk().List(path, std::move(done)); });
  }
  absl::StatusOr<Space> SpaceOf(const std::string& path) {
    return Await<absl::StatusOr<Space>>([&](auto done) { disk().SpaceOf(path, std::move(done)); });
  }

  Kind kind_;
};

}  // namespace forebay::io
