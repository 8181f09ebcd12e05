#include "io/pool_disk.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::io {

PoolDisk::PoolDisk(const DiskOptions& options)
    : pool_(std::max<size_t>(1, options.workers_max), "disk-pool") {}

PoolDisk::~PoolDisk() {
  Drain();
  pool_.Stop();
}

void PoolDisk::Start(std::unique_ptr<Operation> operation) {
  const bool posted = pool_.Post([this, operation = std::move(operation)]() mutable {
    while (!operation->Advance(operation->Call())) {
    }
    Finish(std::move(operation));
  });
  FOREBAY_CHECK(posted);
}

}  // namespace forebay::io
