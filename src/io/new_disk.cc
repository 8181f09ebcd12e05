#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/disk.h"
#include "io/pool_disk.h"
#include "io/uring_disk.h"

namespace forebay::io {

std::unique_ptr<Disk> NewDisk(const DiskOptions& options, std::string* why) {
  if (!options.allow_uring) {
    *why = "threads: io_uring is switched off by configuration";
    return std::make_unique<PoolDisk>(options);
  }
  auto uring = UringDisk::New(options);
  if (uring.ok()) {
    *why = "io_uring: the kernel allows it";
    return *std::move(uring);
  }
  *why = absl::StrCat("threads: ", uring.status().message());
  return std::make_unique<PoolDisk>(options);
}

}  // namespace forebay::io
