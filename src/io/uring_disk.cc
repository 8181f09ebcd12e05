#include "io/uring_disk.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace forebay::io {
namespace {

constexpr uint32_t kQueueDepthMax = 4096;
// The length of a request has 32 bits; longer ones go as vectors, which the kernel cuts.
constexpr size_t kPlainBytesMax = size_t{1} << 30;

absl::Status Refused(int error, const char* hint) {
  return ErrnoStatus(error, "io_uring is refused:", "setup", hint);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UringDisk>> UringDisk::New(const DiskOptions& options) {
  auto disk = std::unique_ptr<UringDisk>(new UringDisk(options));
  if (disk->wake_ < 0) return ErrnoStatus(errno, "eventfd", "");
  absl::Status started;
  std::latch has_started(1);
  // The ring is set up by the thread that uses it: a kernel that knows of single issuers takes no
  // other.
  disk->thread_ = std::thread([&, ring = disk.get()] { ring->Run(&started, &has_started); });
  pthread_setname_np(disk->thread_.native_handle(), "disk-ring");
  has_started.wait();
  if (started.ok()) return disk;
  disk->thread_.join();
  return started;
}

UringDisk::UringDisk(const DiskOptions& options)
    : queue_depth_(std::clamp<uint32_t>(options.queue_depth, 1, kQueueDepthMax)),
      workers_max_(std::max<uint32_t>(options.workers_max, 1)),
      wake_(eventfd(0, EFD_CLOEXEC)) {}

UringDisk::~UringDisk() {
  Drain();
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
  }
  if (wake_ >= 0) close(wake_);
}

void UringDisk::Start(std::unique_ptr<Operation> operation) {
  if (operation->kind() == Operation::Kind::kTruncate) {
    const bool posted = names().Post([this, operation = std::move(operation)]() mutable {
      while (!operation->Advance(operation->Call())) {
      }
      Finish(std::move(operation));
    });
    FOREBAY_CHECK(posted);
    return;
  }
  bool wake;
  {
    std::lock_guard lock(mutex_);
    asked_.push_back(std::move(operation));
    wake = std::exchange(asleep_, false);
  }
  if (wake) Wake();
}

void UringDisk::Wake() {
  const uint64_t one = 1;
  ssize_t written;
  do {
    written = write(wake_, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  FOREBAY_CHECK(written == sizeof one);
}

// --- the ring's thread ---

void UringDisk::Run(absl::Status* started, std::latch* has_started) {
  *started = SetUp();
  const bool ok = started->ok();
  has_started->count_down();
  if (!ok) return;
  while (TakeAsked()) {
    FillRing();
    Enter();
    TakeCompleted();
  }
  // The kernel may write to wake_value_ until the read of it is back; who stops us also wakes us.
  while (wake_armed_) {
    Enter();
    TakeCompleted();
  }
  io_uring_queue_exit(&ring_);
}

absl::Status UringDisk::SetUp() {
  const uint32_t entries = std::bit_ceil(queue_depth_ + 1);  // and the read of wake_
  // With deferred work completions are handled when this thread asks for them, and interrupt it at
  // no other time (Linux 6.1).
  int result = -EINVAL;
  for (const uint32_t flags : {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, 0u}) {
    io_uring_params parameters{};
    parameters.flags = flags;
    result = io_uring_queue_init_params(entries, &ring_, &parameters);
    if (result != -EINVAL) break;
  }
  if (result == -EPERM) return Refused(EPERM, "by kernel.io_uring_disabled or a seccomp filter");
  if (result == -ENOSYS)
    return Refused(ENOSYS, "not in this kernel, or hidden by a seccomp filter");
  if (result == -ENOMEM)
    return Refused(ENOMEM, "no memory, or none that may be locked (ulimit -l)");
  if (result < 0) return Refused(-result, "by the kernel");

  absl::Status status;
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  for (const int operation : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READV, IORING_OP_WRITEV,
                              IORING_OP_FSYNC, IORING_OP_FALLOCATE}) {
    if (probe == nullptr || !io_uring_opcode_supported(probe, operation)) {
      status = Refused(EOPNOTSUPP, "this kernel lacks an operation (needs Linux 5.15)");
    }
  }
  if (probe != nullptr) io_uring_free_probe(probe);
  unsigned workers[2] = {workers_max_, workers_max_};
  if (status.ok() && io_uring_register_iowq_max_workers(&ring_, workers) < 0) {
    status = Refused(EOPNOTSUPP, "this kernel cannot bound its workers (needs Linux 5.15)");
  }
  if (!status.ok()) io_uring_queue_exit(&ring_);
  return status;
}

bool UringDisk::TakeAsked() {
  std::lock_guard lock(mutex_);
  std::move(asked_.begin(), asked_.end(), std::back_inserter(waiting_));
  asked_.clear();
  if (stopping_ && waiting_.empty() && in_flight_ == 0) return false;
  // With a full ring only a completion helps, and that wakes by itself.
  asleep_ = in_flight_ + waiting_.size() < queue_depth_;
  return true;
}

void UringDisk::FillRing() {
  if (!wake_armed_) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    FOREBAY_CHECK(entry != nullptr);
    io_uring_prep_read(entry, wake_, &wake_value_, sizeof wake_value_, 0);
    io_uring_sqe_set_data(entry, nullptr);
    wake_armed_ = true;
  }
  while (!waiting_.empty() && in_flight_ < queue_depth_) {
    // Never full: it holds what is in flight, and in_flight_ counts what was not submitted yet.
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    FOREBAY_CHECK(entry != nullptr);
    Operation* operation = waiting_.front().release();  // the kernel's until it completes
    waiting_.pop_front();
    Prepare(entry, *operation);
    io_uring_sqe_set_data(entry, operation);
    ++in_flight_;
  }
}

void UringDisk::Prepare(io_uring_sqe* entry, const Operation& operation) {
  const int descriptor = operation.file().descriptor();
  const absl::Span<const iovec> rest = operation.Rest();
  const bool plain = rest.size() == 1 && rest[0].iov_len <= kPlainBytesMax;
  const auto count = static_cast<unsigned>(rest.size());
  switch (operation.kind()) {
    case Operation::Kind::kRead:
      if (plain) {
        io_uring_prep_read(entry, descriptor, rest[0].iov_base,
                           static_cast<unsigned>(rest[0].iov_len), operation.offset());
      } else {
        io_uring_prep_readv(entry, descriptor, rest.data(), count, operation.offset());
      }
      break;
    case Operation::Kind::kWrite:
    case Operation::Kind::kWriteSynced:
      if (plain) {
        io_uring_prep_write(entry, descriptor, rest[0].iov_base,
                            static_cast<unsigned>(rest[0].iov_len), operation.offset());
      } else {
        io_uring_prep_writev(entry, descriptor, rest.data(), count, operation.offset());
      }
      if (operation.kind() == Operation::Kind::kWriteSynced) entry->rw_flags = RWF_DSYNC;
      break;
    case Operation::Kind::kSync:
      io_uring_prep_fsync(entry, descriptor, IORING_FSYNC_DATASYNC);
      break;
    case Operation::Kind::kAllocate:
      io_uring_prep_fallocate(entry, descriptor, FALLOC_FL_KEEP_SIZE, 0,
                              static_cast<off_t>(operation.offset()));
      break;
    case Operation::Kind::kTruncate:
      FOREBAY_CHECK(false);
  }
  // What could not be done without waiting shall wait in a worker, not come back at once again. A
  // sync always waits.
  if (operation.retried() || operation.kind() == Operation::Kind::kWriteSynced)
    io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
}

void UringDisk::Enter() {
  const int result = io_uring_submit_and_wait(&ring_, 1);
  if (result >= 0 || result == -EINTR) return;
  // The kernel has no memory for more requests, or completions that it could not deliver. Entries
  // that were not submitted stay in the ring; taking what is completed makes room.
  FOREBAY_CHECK(result == -EAGAIN || result == -EBUSY || result == -ENOMEM);
  io_uring_get_events(&ring_);
  if (io_uring_cq_ready(&ring_) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void UringDisk::TakeCompleted() {
  {
    std::lock_guard lock(mutex_);
    asleep_ = false;
  }
  unsigned head, seen = 0;
  io_uring_cqe* completion;
  io_uring_for_each_cqe(&ring_, head, completion) {
    ++seen;
    auto* operation = static_cast<Operation*>(io_uring_cqe_get_data(completion));
    if (operation == nullptr) {
      FOREBAY_CHECK(completion->res == sizeof wake_value_ || completion->res == -EINTR ||
                    completion->res == -EAGAIN);
      wake_armed_ = false;
      continue;
    }
    --in_flight_;
    std::unique_ptr<Operation> own(operation);
    if (own->Advance(completion->res)) {
      taken_.push_back(std::move(own));
    } else {
      waiting_.push_front(std::move(own));  // it had its turn
    }
  }
  io_uring_cq_advance(&ring_, seen);
  for (std::unique_ptr<Operation>& operation : taken_) Finish(std::move(operation));
  taken_.clear();
}

}  // namespace forebay::io
