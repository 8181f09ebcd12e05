// A log under test: a loop for its owner, what recovery gives back, and the disks it runs over.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "storage/log_blocking.h"
#include "storage/log_recovery.h"
#include "storage/log_writer.h"
#include "tests/unit/io/disk_kinds.h"

namespace forebay::storage {

// The owner's loop: closures from any thread, run by the test alone.
class TestLoop {
 public:
  LogPost post() {
    return [this](absl::AnyInvocable<void()> work) {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      changed_.notify_one();
    };
  }
  // Runs what was posted.
  bool RunOne() {
    absl::AnyInvocable<void()> work;
    {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
    return true;
  }
  // For real disks: waits for what comes from their threads.
  void AwaitOne() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void()>> queue_;
};

// What a machine was given at its start.
struct Recovered {
  absl::StatusOr<RecoveredLog> log = absl::UnknownError("not recovered");
  std::vector<std::string> chunks;
  std::map<uint64_t, std::string> records;
  // They follow each other up to the next position.
  bool dense() const {
    return records.size() == log->records &&
           (records.empty() || (records.begin()->first == log->next.value - records.size() &&
                                records.rbegin()->first + 1 == log->next.value));
  }
};

inline Recovered Recover(Blocking disk, const std::string& directory,
                         const std::string& machine = "shard-3") {
  Recovered result;
  LogSink sink;
  sink.begin_snapshot = [&](LogPosition, uint64_t) {
    result.chunks.clear();
    return absl::OkStatus();
  };
  sink.chunk = [&](std::string_view chunk) {
    result.chunks.emplace_back(chunk);
    return absl::OkStatus();
  };
  sink.end_snapshot = [] { return absl::OkStatus(); };
  sink.record = [&](LogPosition position, std::string_view record) {
    EXPECT_TRUE(result.records.emplace(position.value, record).second);
    return absl::OkStatus();
  };
  result.log = RecoverLog(std::move(disk), directory, machine, sink);
  return result;
}

// Record number `position`: some have no bytes, some many.
inline std::string RecordOf(uint64_t position) {
  return std::string(position * 7919 % 3000, static_cast<char>('a' + position % 26));
}

// An empty volume in place of the one there was, and a disk on it.
inline void Renew(io::MemoryKind& kind) {
  kind.disk = nullptr;
  kind.volume = std::make_shared<io::MemoryVolume>();
  io::MemoryVolume::Event folder{.kind = io::MemoryVolume::Event::Kind::kMakeDirectory};
  folder.path = kind.path();
  kind.volume->Apply(folder);
  kind.disk = kind.New();
}

inline bool IsVirtual(const io::MemoryKind&) { return true; }
template <class Kind>
bool IsVirtual(const Kind&) {
  return false;
}
inline bool Turn(io::MemoryKind& kind) { return kind.time.RunOne(); }
template <class Kind>
bool Turn(Kind&) {
  return false;
}

template <class Kind>
class LogTest : public testing::Test {
 protected:
  Blocking blocking() {
    if (IsVirtual(kind_)) return Blocking(kind_.disk.get(), [this] { return Turn(kind_); });
    return Blocking(kind_.disk.get());
  }
  const std::string& directory() const { return kind_.path(); }
  LogOptions options() const {
    return {.directory = directory(), .name = "shard-3", .epoch = 2, .nonce = 77};
  }
  void Start(LogOptions options, LogPosition next = LogPosition(1), uint64_t file_number = 1) {
    next_ = next.value;
    failed_ = absl::OkStatus();
    failures_ = 0;
    writer_ = std::make_unique<LogWriter>(kind_.disk.get(), std::move(options), next, file_number,
                                          loop_.post(),
                                          LogEvents{[this] { ++durable_calls_; },
                                                    [this](absl::Status status) {
                                                      failed_ = std::move(status);
                                                      ++failures_;
                                                    }});
  }
  // Starts where recovery says, which gave back what is expected.
  Recovered Restart(LogOptions options) {
    writer_.reset();
    Recovered recovered = Recover(blocking(), directory());
    EXPECT_TRUE(recovered.log.ok()) << recovered.log.status();
    if (recovered.log.ok()) Start(options, recovered.log->next, recovered.log->file_number);
    return recovered;
  }
  void Append(int count) {
    for (int i = 0; i < count; ++i, ++next_) writer_->Append(LogPosition(next_), RecordOf(next_));
  }
  void RunUntil(const std::function<bool()>& condition) {
    while (!condition()) {
      if (loop_.RunOne() || Turn(kind_)) continue;
      ASSERT_FALSE(IsVirtual(kind_)) << "nothing is left to run";
      loop_.AwaitOne();
    }
  }
  // Until all that was appended is durable, or the writer has ended.
  void Drain() {
    RunUntil([this] { return writer_->durable().value + 1 == next_ || !writer_->status().ok(); });
  }
  // Runs what is left, in virtual time.
  void RunAll() {
    while (loop_.RunOne() || Turn(kind_)) {
    }
  }

  TestLoop loop_;  // the disk's last answers go there
  Kind kind_;
  uint64_t next_ = 1;
  int durable_calls_ = 0;
  absl::Status failed_;
  int failures_ = 0;
  std::unique_ptr<LogWriter> writer_;
};

}  // namespace forebay::storage
