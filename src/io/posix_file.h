// An open file descriptor as a Disk hands it out, and the calls on names that both real disks make.
//
// The functions block and may be called from any thread; a PosixFile is immutable. The descriptor
// is closed on the disk's thread for names (closing a file on NFS may write and wait), or at once
// if the disk is gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/disk.h"
#include "io/workers.h"

namespace forebay::io {

class PosixFile : public File {
 public:
  PosixFile(std::string path, int descriptor, bool direct, std::shared_ptr<Workers> closer);
  ~PosixFile() override;
  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }
  int descriptor() const { return descriptor_; }

 private:
  const std::string path_;
  const int descriptor_;
  const bool direct_;
  const std::shared_ptr<Workers> closer_;
};

absl::StatusOr<FileRef> OpenPosixFile(const std::string& path, OpenOptions options,
                                      std::shared_ptr<Workers> closer);
absl::StatusOr<uint64_t> SizeOfFile(const PosixFile& file);
absl::Status RenameFile(const std::string& from, const std::string& to);
absl::Status UnlinkFile(const std::string& path);
absl::Status MakeDirectories(const std::string& path);
absl::Status SyncDirectoryEntries(const std::string& path);
absl::StatusOr<std::vector<Entry>> ListFiles(const std::string& path);
absl::StatusOr<Space> SpaceAt(const std::string& path);

}  // namespace forebay::io
