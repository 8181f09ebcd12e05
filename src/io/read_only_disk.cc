#include "io/read_only_disk.h"

#include <cerrno>

namespace forebay::io {

void ReadOnlyDisk::Open(std::string path, OpenOptions options, DoneWith<FileRef> done) {
  if (options.mode == OpenMode::kCreate) return done(ErrnoStatus(EROFS, "open", path));
  options.mode = OpenMode::kRead;
  below_->Open(std::move(path), options, std::move(done));
}

}  // namespace forebay::io
