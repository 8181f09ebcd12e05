// A disk on io_uring: one ring, and one thread that submits what others ask for, in batches, and
// takes what completes.
//
// Thread-safe as Disk says. At most `queue_depth` operations are with the kernel; the rest waits in
// order. The kernel's own workers (every request on NFS and every buffered write needs one) are at
// most `workers_max`. `done` runs on the ring's thread, so that it delays what is asked next.
//
// Truncate has no operation in older kernels and is rare: it runs on the thread for names.
//
// Files and buffers are not registered. A bare ring took 6.5 us of CPU for a direct write of 4 KiB,
// 6.2 with either; for 1 MiB 49 us, 41 with files, 34 with both: 0.015 s a GB saved, for memory
// that must be pinned and handed out from one place (`ring_benchmark --benchmark_repetitions=7
// --benchmark_enable_random_interleaving=true`, medians on two busy cores).
#pragma once

#include <liburing.h>

#include <cstdint>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "io/posix_disk.h"

namespace forebay::io {

class UringDisk final : public PosixDisk {
 public:
  // Fails where the kernel has no io_uring, forbids it, or lacks something that this needs.
  static absl::StatusOr<std::unique_ptr<UringDisk>> New(const DiskOptions& options);
  ~UringDisk() override;
  std::string_view name() const override { return "io_uring"; }

 private:
  explicit UringDisk(const DiskOptions& options);
  void Start(std::unique_ptr<Operation> operation) override;
  void Wake();

  // On the ring's thread.
  void Run(absl::Status* started, std::latch* has_started);
  absl::Status SetUp();
  // Moves what was asked to waiting_; false once everything is done and no more will come.
  bool TakeAsked();
  void FillRing();
  static void Prepare(io_uring_sqe* entry, const Operation& operation);
  // Submits, and waits until something has completed.
  void Enter();
  void TakeCompleted();

  const uint32_t queue_depth_;
  const uint32_t workers_max_;
  int wake_ = -1;  // an eventfd; the ring always has a read of it

  std::mutex mutex_;  // guards these three
  std::vector<std::unique_ptr<Operation>> asked_;
  bool asleep_ = false;  // whoever asks must wake the ring's thread
  bool stopping_ = false;

  // Of the ring's thread.
  io_uring ring_{};
  std::vector<std::unique_ptr<Operation>> taken_;  // keeps its memory from turn to turn
  std::deque<std::unique_ptr<Operation>> waiting_;
  uint32_t in_flight_ = 0;
  bool wake_armed_ = false;
  uint64_t wake_value_ = 0;

  std::thread thread_;
};

}  // namespace forebay::io
