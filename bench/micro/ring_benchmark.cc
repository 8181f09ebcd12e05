// A bare ring, as the limit of UringDisk, and what registering files and buffers with it would
// save.
//
// Direct writes over a file of 64 MiB in TMPDIR, 8 in flight, on one thread; look at the CPU column
// (the disk's own time drifts), and compare only what ran in one call.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "io/uring_disk.h"  // brings liburing, which belongs to src/io

namespace {

constexpr uint64_t kFileBytes = uint64_t{64} << 20;
constexpr uint64_t kDepth = 8;

enum Registered { kNothing, kFiles, kFilesAndBuffers };

// A ring with a file and memory for kDepth writes of `size`.
class BareRing {
 public:
  BareRing(Registered registered, uint64_t size) : registered_(registered), size_(size) {
    path_ = std::filesystem::temp_directory_path() / "forebay-ring-benchmark";
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
    std::fill_n(memory_.get(), kDepth * size_, 'x');
    good_ = file_ >= 0;
    for (uint64_t at = 0; good_ && at < kFileBytes; at += size_) {
      good_ = pwrite(file_, memory_.get(), size_, static_cast<off_t>(at)) ==
              static_cast<ssize_t>(size_);
    }
    good_ = good_ && fdatasync(file_) == 0;
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    has_ring_ = io_uring_queue_init_params(2 * kDepth, &ring_, &parameters) == 0;
    good_ = good_ && has_ring_;
    if (good_ && registered != kNothing) good_ = io_uring_register_files(&ring_, &file_, 1) == 0;
    if (good_ && registered == kFilesAndBuffers) {
      const iovec all{memory_.get(), kDepth * size_};
      good_ = io_uring_register_buffers(&ring_, &all, 1) == 0;
    }
  }
  ~BareRing() {
    if (has_ring_) io_uring_queue_exit(&ring_);
    close(file_);
    std::filesystem::remove(path_);
  }
  bool good() const { return good_; }

  // One write more; waits while there are kDepth.
  void Write() {
    while (in_flight_ == kDepth) Take();
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    char* from = memory_.get() + started_++ % kDepth * size_;
    const int file = registered_ == kNothing ? file_ : 0;
    const auto size = static_cast<unsigned>(size_);
    if (registered_ == kFilesAndBuffers) {
      io_uring_prep_write_fixed(entry, file, from, size, at_, 0);
    } else {
      io_uring_prep_write(entry, file, from, size, at_);
    }
    if (registered_ != kNothing) io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    at_ = (at_ + size_) % kFileBytes;
    ++in_flight_;
  }
  void AwaitAll() {
    while (in_flight_ > 0) Take();
  }

 private:
  void Take() {
    io_uring_submit_and_wait(&ring_, 1);
    unsigned head, seen = 0;
    io_uring_cqe* completion;
    io_uring_for_each_cqe(&ring_, head, completion) {
      ++seen;
      good_ = good_ && completion->res == static_cast<int>(size_);
    }
    io_uring_cq_advance(&ring_, seen);
    in_flight_ -= seen;
  }

  const Registered registered_;
  const uint64_t size_;
  const std::unique_ptr<char, decltype(&std::free)> memory_{
      static_cast<char*>(std::aligned_alloc(4096, kDepth* size_)), &std::free};
  std::string path_;
  int file_ = -1;
  bool good_ = false, has_ring_ = false;
  io_uring ring_{};
  uint64_t started_ = 0, in_flight_ = 0, at_ = 0;
};

void BareRingWrite(benchmark::State& state) {
  const auto size = static_cast<uint64_t>(state.range(1));
  BareRing ring(static_cast<Registered>(state.range(0)), size);
  if (!ring.good()) return state.SkipWithError("no such ring, no direct access, or no room here");
  for (auto _ : state) ring.Write();
  ring.AwaitAll();
  if (!ring.good()) state.SkipWithError("a write failed");
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}
BENCHMARK(BareRingWrite)
    ->ArgNames({"registered", "bytes"})
    ->ArgsProduct({{kNothing, kFiles, kFilesAndBuffers}, {4096, 1 << 20}})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
