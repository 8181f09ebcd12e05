// A disk's calls for those that may wait, as recovery at the start: each returns its answer.
//
// For one thread. Not from within a `done` of the disk. In virtual time somebody must run the
// events while it waits: `turn` runs one, false if there is none, which ends the process, since the
// answer would never come.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "io/disk.h"

namespace forebay::storage {

class Blocking {
 public:
  explicit Blocking(io::Disk* disk, std::function<bool()> turn = nullptr)
      : disk_(disk), turn_(std::move(turn)) {}

  absl::StatusOr<io::FileRef> Open(const std::string& path, io::OpenMode mode) {
    return Await<absl::StatusOr<io::FileRef>>(
        [&](auto done) { disk_->Open(path, {.mode = mode}, std::move(done)); });
  }
  absl::StatusOr<size_t> Read(const io::FileRef& file, uint64_t offset, absl::Span<char> to) {
    return Await<absl::StatusOr<size_t>>(
        [&](auto done) { disk_->Read(file, offset, to, std::move(done)); });
  }
  absl::Status Write(const io::FileRef& file, uint64_t offset, std::string_view bytes) {
    return Await<absl::Status>([&](auto done) {
      disk_->Write(file, offset, {{bytes.data(), bytes.size()}}, std::move(done));
    });
  }
  absl::Status Sync(const io::FileRef& file) {
    return Await<absl::Status>([&](auto done) { disk_->Sync(file, std::move(done)); });
  }
  absl::Status Truncate(const io::FileRef& file, uint64_t bytes) {
    return Await<absl::Status>([&](auto done) { disk_->Truncate(file, bytes, std::move(done)); });
  }
  absl::StatusOr<uint64_t> Size(const io::FileRef& file) {
    return Await<absl::StatusOr<uint64_t>>([&](auto done) { disk_->Size(file, std::move(done)); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) {
    return Await<absl::Status>([&](auto done) { disk_->Rename(from, to, std::move(done)); });
  }
  absl::Status Unlink(const std::string& path) {
    return Await<absl::Status>([&](auto done) { disk_->Unlink(path, std::move(done)); });
  }
  absl::Status MakeDirectory(const std::string& path) {
    return Await<absl::Status>([&](auto done) { disk_->MakeDirectory(path, std::move(done)); });
  }
  absl::Status SyncDirectory(const std::string& path) {
    return Await<absl::Status>([&](auto done) { disk_->SyncDirectory(path, std::move(done)); });
  }
  absl::StatusOr<std::vector<io::Entry>> List(const std::string& path) {
    return Await<absl::StatusOr<std::vector<io::Entry>>>(
        [&](auto done) { disk_->List(path, std::move(done)); });
  }

 private:
  template <class T, class Start>
  T Await(Start start) {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<T> result;
    start([&](T answer) {
      // Notified with the lock held: the waiter takes both away as soon as it can.
      std::lock_guard lock(mutex);
      result.emplace(std::move(answer));
      changed.notify_one();
    });
    // In virtual time the answer comes within a turn, on this very thread.
    while (turn_ && !result.has_value()) FOREBAY_CHECK(turn_());
    std::unique_lock lock(mutex);
    changed.wait(lock, [&result] { return result.has_value(); });
    return *std::move(result);
  }

  io::Disk* const disk_;
  const std::function<bool()> turn_;
};

}  // namespace forebay::storage
