// The simulator's disk: a host's view of a MemoryVolume in virtual time, with faults.
//
// Single-threaded and deterministic. `done` is called from an event of the VirtualTime, never
// before the call returns unless the call is refused. Operations on data take a delay drawn between
// two bounds each, so that they complete in any order; those on names run one after another.
// A buffer that changes while a write has it fails a check.
//
// Unlike a real disk it can be destroyed at any moment: what is running completes then and there,
// what hangs is dropped without an answer. After Crash nothing is answered any more; open files are
// dead, and a new disk on the same volume is the host started anew.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "io/disk.h"
#include "io/memory_volume.h"
#include "io/virtual_time.h"

namespace forebay::io {

enum class MemoryOperation : uint8_t {
  kRead,
  kWrite,
  kSync,
  kAllocate,
  kTruncate,
  kOpen,
  kSize,
  kRename,
  kUnlink,
  kMakeDirectory,
  kSyncDirectory,
  kList,
  kSpaceOf,
};

// Something that goes wrong with the operations that match, counted from when it was injected.
struct Fault {
  enum class What : uint8_t {
    kFail,             // with `error`; of a write, some first part may have happened
    kFailButHappened,  // with `error`, though all of it happened, as over a network
    kHang,             // no answer until Heal
    kDelay,            // `delay_ms` more
    kFlipBit,          // of what a read brings or a write stores
  };
  What what = What::kFail;
  std::optional<MemoryOperation> operation;  // any if not set
  std::string path;                          // some part of the file's path; empty for any
  uint64_t from = 0;                         // a read or write that ends before it passes
  uint64_t skip = 0;                         // so many pass before
  uint64_t times = 1;                        // so many are struck; UINT64_MAX until Heal
  int error = 5;                             // EIO
  uint64_t delay_ms = 0;
};

// Something that happened to a file, whatever its caller was told.
struct MemoryAccess {
  // kOpen, kWrite (as it begins), kAllocate, kTruncate, kRename or kUnlink.
  MemoryOperation operation = MemoryOperation::kOpen;
  OpenMode mode = OpenMode::kRead;  // of kOpen
  std::string path;                 // under which it was opened
  std::string to;                   // of kRename
};

struct MemoryDiskOptions {
  uint32_t host = 0;
  uint64_t seed = 1;
  uint64_t delay_least_ms = 0, delay_most_ms = 0;
  bool direct = true;   // takes OpenOptions::direct
  bool remote = false;  // a file that another host unlinked is stale, as over NFS
  std::function<void(const MemoryAccess&)> watch;  // must not call the disk; may be null
};

class MemoryDisk final : public Disk {
 public:
  enum class CrashKind : uint8_t {
    kProcess,  // the host lives, and with it all that was written
    kPower,    // what was not synced may be lost
  };

  MemoryDisk(std::shared_ptr<MemoryVolume> volume, VirtualTime time, MemoryDiskOptions options);
  ~MemoryDisk() override;
  std::string_view name() const override { return "memory"; }

  void Write(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces, Done done) override;
  void WriteSynced(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces,
                   Done done) override;
  void ReadPieces(FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                  DoneWith<size_t> done) override;
  void Sync(FileRef file, Done done) override;
  void Allocate(FileRef file, uint64_t bytes, Done done) override;
  void Truncate(FileRef file, uint64_t bytes, Done done) override;
  void Open(std::string path, OpenOptions options, DoneWith<FileRef> done) override;
  void Size(FileRef file, DoneWith<uint64_t> done) override;
  void Rename(std::string from, std::string to, Done done) override;
  void Unlink(std::string path, Done done) override;
  void MakeDirectory(std::string path, Done done) override;
  void SyncDirectory(std::string path, Done done) override;
  void List(std::string path, DoneWith<std::vector<Entry>> done) override;
  void SpaceOf(std::string path, DoneWith<Space> done) override;
  DiskUse use() const override;

  // --- faults ---
  void Inject(Fault fault);
  // From now on nothing completes, until Heal.
  void Hang();
  // Ends all faults; what hung completes.
  void Heal();
  // Flips a bit of a stored byte, as it is read and as it is durable. The file is there and is that
  // long.
  void FlipStoredBit(const std::string& path, uint64_t offset, uint32_t bit);
  void Crash(CrashKind kind);

  MemoryVolume& volume() { return *volume_; }

 private:
  class OpenFile;
  // Does what is asked, or not if it is struck by a fault that says so; returns an errno.
  using Act = absl::AnyInvocable<int(const Fault*)>;
  struct Running {
    MemoryOperation operation;
    std::optional<Fault> fault;
    Act act;
    absl::AnyInvocable<void(int)> answer;
    uint64_t since_ms = 0;
    uint64_t delay_ms = 0;
    bool hangs = false;
  };

  static bool OnNames(MemoryOperation operation) { return operation >= MemoryOperation::kOpen; }
  void Start(MemoryOperation operation, std::optional<Fault> fault, Act act,
             absl::AnyInvocable<void(int)> answer);
  // The fault that strikes the next operation of that kind, which begins now.
  // `end`: of the bytes that are read or written.
  std::optional<Fault> Strike(MemoryOperation operation, const std::string& path,
                              uint64_t end = UINT64_MAX);
  // For all but reads, writes and syncs. `words` name the operation in errors.
  void StartAction(MemoryOperation operation, std::string_view words, std::string path,
                   absl::AnyInvocable<int()> act, Done done);
  template <class T>
  void StartQuestion(MemoryOperation operation, std::string_view words, const std::string& path,
                     absl::AnyInvocable<int(T*)> ask, DoneWith<T> done);
  void Schedule(uint64_t id);
  void Complete(uint64_t id);
  void Count(MemoryOperation operation, bool ok);

  void StartWrite(const std::shared_ptr<OpenFile>& own, uint64_t write, uint64_t offset,
                  std::vector<ConstBuffer> pieces, Done done);
  // Of one write, or with 0 of all that were completed.
  void StartSync(const std::shared_ptr<OpenFile>& own, uint64_t write, Done done);
  std::shared_ptr<OpenFile> OwnFile(const FileRef& file) const;
  // 0, or why the file or the path's directory cannot be reached.
  int Reach(const OpenFile& file) const;
  int ReachDirectoryOf(const std::string& path) const;
  int OpenNow(const std::string& path, OpenOptions options, FileRef* file);
  int RenameNow(const std::string& from, const std::string& to);
  int UnlinkNow(const std::string& path);
  int MakeDirectoryNow(const std::string& path);
  int EndWrite(const OpenFile& file, MemoryVolume::Event end, uint64_t offset, const Fault* fault);
  int ReadNow(const OpenFile& file, uint64_t offset, absl::Span<const absl::Span<char>> pieces,
              const Fault* fault);
  int SyncNow(const OpenFile& file, uint64_t write, uint64_t covered, const Fault* fault);
  MemoryVolume::Event NewEvent(MemoryVolume::Event::Kind kind) const;
  void Watch(MemoryAccess access) const {
    if (options_.watch) options_.watch(access);
  }

  const std::shared_ptr<MemoryVolume> volume_;
  const VirtualTime time_;
  const MemoryDiskOptions options_;
  Prng prng_;
  std::vector<Fault> faults_;
  bool hung_ = false;
  bool crashed_ = false;
  std::map<uint64_t, Running> running_;
  std::deque<uint64_t> names_;  // running, in their order; the first is scheduled
  uint64_t next_id_ = 1;
  DiskUse use_;
  uint64_t moved_ = 0;                 // by the last read or write
  std::shared_ptr<MemoryDisk*> self_;  // null inside once the disk is gone
};

}  // namespace forebay::io
