// A disk on a pool of threads with pread and pwrite, for kernels where io_uring is switched off.
//
// Thread-safe as Disk says. At most `workers_max` operations on data run at a time; the rest waits
// in order.
#pragma once

#include "io/posix_disk.h"

namespace forebay::io {

class PoolDisk final : public PosixDisk {
 public:
  explicit PoolDisk(const DiskOptions& options);
  ~PoolDisk() override;
  std::string_view name() const override { return "threads"; }

 private:
  void Start(std::unique_ptr<Operation> operation) override;

  Workers pool_;
};

}  // namespace forebay::io
