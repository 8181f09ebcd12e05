// The two real disks against each other: one file, so many operations in flight, direct or through
// the page cache.
//
// Files lie in the folder that TMPDIR names (/tmp if none). Figures are bytes moved in real time;
// "items" are operations. Writes go over a file of 64 MiB that is there already, and are not synced
// but in WriteThenSync and WriteSynced. Compare only what ran in one call: a shared disk drifts by
// 40%.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "io/disk.h"

namespace {

using forebay::io::Disk;
using forebay::io::FileRef;
using forebay::io::OpenMode;

constexpr uint64_t kFileBytes = uint64_t{64} << 20;

// Lets so many operations into the disk at a time.
class Window {
 public:
  explicit Window(int depth) : free_(depth), depth_(depth) {}
  void Enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return free_ > 0; });
    --free_;
  }
  void Leave(bool ok) {
    std::lock_guard lock(mutex_);
    ok_ = ok_ && ok;
    ++free_;
    changed_.notify_one();
  }
  bool AwaitAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return free_ == depth_; });
    return ok_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  const int depth_;
  bool ok_ = true;
};

// A disk with an open file of kFileBytes, gone with it.
class Bench {
 public:
  Bench(bool uring, bool direct, bool filled) {
    std::string why;
    disk_ = forebay::io::NewDisk({.allow_uring = uring}, &why);
    path_ = std::filesystem::temp_directory_path() / "forebay-disk-benchmark";
    std::filesystem::remove(path_);
    Window window(1);
    window.Enter();
    disk_->Open(path_, {.mode = OpenMode::kCreate, .direct = direct}, [&](auto file) {
      if (file.ok()) file_ = *std::move(file);
      window.Leave(file.ok());
    });
    good_ = window.AwaitAll() && disk_->name() == (uring ? "io_uring" : "threads");
    if (good_ && filled) Fill();
  }
  ~Bench() {
    file_.reset();
    disk_.reset();
    std::filesystem::remove(path_);
  }
  bool good() const { return good_; }
  Disk& disk() { return *disk_; }
  const FileRef& file() const { return file_; }

 private:
  void Fill() {
    constexpr uint64_t kPiece = 1 << 20;
    const std::unique_ptr<char, decltype(&std::free)> bytes(
        static_cast<char*>(std::aligned_alloc(4096, kPiece)), &std::free);
    std::fill_n(bytes.get(), kPiece, 'x');
    Window window(4);
    for (uint64_t at = 0; at < kFileBytes; at += kPiece) {
      window.Enter();
      disk_->Write(file_, at, {{bytes.get(), kPiece}},
                   [&](absl::Status status) { window.Leave(status.ok()); });
    }
    window.AwaitAll();
    window.Enter();
    disk_->Sync(file_, [&](absl::Status status) { window.Leave(status.ok()); });
    good_ = window.AwaitAll();
  }

  std::unique_ptr<Disk> disk_;
  std::string path_;
  FileRef file_;
  bool good_ = false;
};

enum class Pattern { kWrite, kRead, kWriteThenSync, kWriteSynced };

void Run(benchmark::State& state, Pattern pattern) {
  const bool uring = state.range(0) == 1, direct = state.range(1) == 1;
  const auto size = static_cast<uint64_t>(state.range(2));
  const auto depth = static_cast<int>(state.range(3));
  Bench bench(uring, direct, pattern == Pattern::kWrite || pattern == Pattern::kRead);
  if (!bench.good()) return state.SkipWithError("no such disk, or no room here");
  const uint64_t memory = size * static_cast<uint64_t>(depth);
  const std::unique_ptr<char, decltype(&std::free)> bytes(
      static_cast<char*>(std::aligned_alloc(4096, memory)), &std::free);
  std::fill_n(bytes.get(), memory, 'y');
  Window window(depth);
  uint64_t at = 0, turn = 0;
  for (auto _ : state) {
    window.Enter();
    // With answers out of order two reads may share a buffer; nobody looks at it.
    char* buffer = bytes.get() + turn++ % static_cast<uint64_t>(depth) * size;
    if (pattern == Pattern::kRead) {
      bench.disk().Read(bench.file(), at, {buffer, size},
                        [&](absl::StatusOr<size_t> read) { window.Leave(read.ok()); });
    } else if (pattern == Pattern::kWriteSynced) {
      bench.disk().WriteSynced(bench.file(), at, {{buffer, size}},
                               [&](absl::Status status) { window.Leave(status.ok()); });
    } else {
      bench.disk().Write(bench.file(), at, {{buffer, size}}, [&](absl::Status status) {
        if (!status.ok() || pattern == Pattern::kWrite) return window.Leave(status.ok());
        bench.disk().Sync(bench.file(), [&](absl::Status synced) { window.Leave(synced.ok()); });
      });
    }
    at = at + 2 * size > kFileBytes ? 0 : at + size;
  }
  if (!window.AwaitAll()) state.SkipWithError("an operation failed");
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}

void Write(benchmark::State& state) { Run(state, Pattern::kWrite); }
void Read(benchmark::State& state) { Run(state, Pattern::kRead); }
// Each write is durable before the next one, in two operations or, as the log and the store do it,
// in one.
void WriteThenSync(benchmark::State& state) { Run(state, Pattern::kWriteThenSync); }
void WriteSynced(benchmark::State& state) { Run(state, Pattern::kWriteSynced); }
void SyncedCases(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"uring", "direct", "bytes", "depth"})
      ->MeasureProcessCPUTime()
      ->UseRealTime();
  for (const int64_t uring : {1, 0}) {
    benchmark->Args({uring, 0, 4096, 1})->Args({uring, 1, 1 << 20, 1});
  }
}

void Cases(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"uring", "direct", "bytes", "depth"})
      ->MeasureProcessCPUTime()
      ->UseRealTime();
  for (const int64_t direct : {1, 0}) {
    for (const int64_t bytes : {4096, 1 << 20}) {
      for (const int64_t uring : {1, 0}) benchmark->Args({uring, direct, bytes, 8});
    }
  }
}
BENCHMARK(Write)->Apply(Cases);
BENCHMARK(Read)->Apply(Cases);
BENCHMARK(WriteThenSync)->Apply(SyncedCases);
BENCHMARK(WriteSynced)->Apply(SyncedCases);

}  // namespace
