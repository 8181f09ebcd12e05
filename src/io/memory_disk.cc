#include "io/memory_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "io/refuse.h"

namespace forebay::io {
namespace {

using Event = MemoryVolume::Event;

uint32_t CrcOf(const std::vector<ConstBuffer>& pieces) {
  uint32_t crc = 0;
  for (const ConstBuffer& piece : pieces) crc = Crc32c({piece.data, piece.size}, crc);
  return crc;
}

// One name for one file: "/a//b/" is "/a/b".
std::string Plain(const std::string& path) {
  FOREBAY_CHECK(!path.empty() && path.front() == '/');
  return absl::StrCat("/", absl::StrJoin(absl::StrSplit(path, '/', absl::SkipEmpty()), "/"));
}

void FlipBit(Prng& prng, char* data, size_t size) {
  if (size > 0) data[prng.Below(size)] ^= static_cast<char>(1 << prng.Below(8));
}

bool Is(const Fault* fault, Fault::What what) { return fault != nullptr && fault->what == what; }

uint64_t EndOf(uint64_t offset, const std::vector<ConstBuffer>& pieces) {
  for (const ConstBuffer& piece : pieces) offset += piece.size;
  return offset;
}

uint64_t EndOf(uint64_t offset, const std::vector<absl::Span<char>>& pieces) {
  for (const absl::Span<char> piece : pieces) offset += piece.size();
  return offset;
}

}  // namespace

class MemoryDisk::OpenFile final : public File {
 public:
  OpenFile(std::string path, bool direct, OpenMode mode, MemoryVolume::Inode inode,
           std::shared_ptr<MemoryVolume> volume)
      : inode(inode),
        writable(mode != OpenMode::kRead),
        path_(std::move(path)),
        direct_(direct),
        volume_(std::move(volume)) {
    volume_->Opened(inode);
  }
  ~OpenFile() override { volume_->Closed(inode); }
  const std::string& path() const override { return path_; }
  bool direct() const override { return direct_; }
  const MemoryVolume* volume() const { return volume_.get(); }

  const MemoryVolume::Inode inode;
  const bool writable;

 private:
  const std::string path_;
  const bool direct_;
  const std::shared_ptr<MemoryVolume> volume_;
};

MemoryDisk::MemoryDisk(std::shared_ptr<MemoryVolume> volume, VirtualTime time,
                       MemoryDiskOptions options)
    : volume_(std::move(volume)),
      time_(std::move(time)),
      options_(options),
      prng_(options.seed),
      self_(std::make_shared<MemoryDisk*>(this)) {}

MemoryDisk::~MemoryDisk() {
  const auto can_end = [this](const auto& running) {
    return !running.second.hangs &&
           (!OnNames(running.second.operation) || names_.front() == running.first);
  };
  while (true) {
    const auto next = std::find_if(running_.begin(), running_.end(), can_end);
    if (next == running_.end()) break;
    Complete(next->first);
  }
  *self_ = nullptr;
}

// --- the way of an operation ---

void MemoryDisk::Start(MemoryOperation operation, std::optional<Fault> fault, Act act,
                       absl::AnyInvocable<void(int)> answer) {
  if (crashed_) return;
  const uint64_t id = next_id_++;
  uint64_t delay_ms =
      options_.delay_least_ms + prng_.Below(options_.delay_most_ms - options_.delay_least_ms + 1);
  if (fault.has_value() && fault->what == Fault::What::kDelay) delay_ms += fault->delay_ms;
  running_.emplace(id, Running{operation, std::move(fault), std::move(act), std::move(answer),
                               time_.now_ms(), delay_ms});
  if (OnNames(operation)) {
    names_.push_back(id);
    if (names_.front() != id) return;
  }
  Schedule(id);
}

std::optional<Fault> MemoryDisk::Strike(MemoryOperation operation, const std::string& path,
                                        uint64_t end) {
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (fault->operation.value_or(operation) != operation) continue;
    if (path.find(fault->path) == std::string::npos || end <= fault->from) continue;
    if (fault->skip > 0) {
      --fault->skip;
      continue;
    }
    const Fault struck = *fault;
    if (fault->times != UINT64_MAX && --fault->times == 0) faults_.erase(fault);
    return struck;
  }
  return std::nullopt;
}

void MemoryDisk::Schedule(uint64_t id) {
  time_.after(running_.at(id).delay_ms, [self = self_, id] {
    if (*self != nullptr) (*self)->Complete(id);
  });
}

void MemoryDisk::Complete(uint64_t id) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  const auto& fault = found->second.fault;
  if (hung_ || (fault.has_value() && fault->what == Fault::What::kHang)) {
    found->second.hangs = true;
    return;
  }
  Running running = std::move(found->second);
  running_.erase(found);
  if (OnNames(running.operation)) {
    FOREBAY_CHECK(names_.front() == id);
    names_.pop_front();
    if (!names_.empty()) Schedule(names_.front());
  }
  moved_ = 0;
  const int error = running.act(running.fault.has_value() ? &*running.fault : nullptr);
  Count(running.operation, error == 0);
  running.act = nullptr;  // with its file, before the caller hears of it
  running.answer(error);  // may destroy this disk
}

void MemoryDisk::Count(MemoryOperation operation, bool ok) {
  if (!ok) ++use_.errors;
  if (operation == MemoryOperation::kRead) {
    ++use_.reads;
    use_.read_bytes += moved_;
  } else if (operation == MemoryOperation::kWrite) {
    ++use_.writes;
    use_.written_bytes += moved_;
  } else if (operation == MemoryOperation::kSync) {
    ++use_.syncs;
  }
}

DiskUse MemoryDisk::use() const {
  DiskUse use = use_;
  use.in_flight = running_.size();
  if (!running_.empty()) use.oldest_ms = time_.now_ms() - running_.begin()->second.since_ms;
  return use;
}

void MemoryDisk::StartAction(MemoryOperation operation, std::string_view words, std::string path,
                             absl::AnyInvocable<int()> act, Done done) {
  auto fault = Strike(operation, path);
  Start(
      operation, std::move(fault),
      [act = std::move(act)](const Fault* fault) mutable {
        if (Is(fault, Fault::What::kFail)) return fault->error;
        const int error = act();
        return error == 0 && Is(fault, Fault::What::kFailButHappened) ? fault->error : error;
      },
      [words, path = std::move(path), done = std::move(done)](int error) mutable {
        done(error == 0 ? absl::OkStatus() : ErrnoStatus(error, words, path));
      });
}

template <class T>
void MemoryDisk::StartQuestion(MemoryOperation operation, std::string_view words,
                               const std::string& path, absl::AnyInvocable<int(T*)> ask,
                               DoneWith<T> done) {
  auto result = std::make_shared<T>();
  StartAction(
      operation, words, path,
      [result, ask = std::move(ask)]() mutable { return ask(result.get()); },
      [result, done = std::move(done)](absl::Status status) mutable {
        status.ok() ? done(std::move(*result)) : done(std::move(status));
      });
}

Event MemoryDisk::NewEvent(Event::Kind kind) const {
  return Event{.kind = kind, .host = options_.host};
}

// --- data ---

std::shared_ptr<MemoryDisk::OpenFile> MemoryDisk::OwnFile(const FileRef& file) const {
  auto own = std::dynamic_pointer_cast<OpenFile>(file);
  FOREBAY_CHECK(own != nullptr && own->volume() == volume_.get());
  return own;
}

int MemoryDisk::Reach(const OpenFile& file) const {
  if (!options_.remote) return 0;
  return volume_->UnlinkedBy(file.inode).value_or(options_.host) == options_.host ? 0 : ESTALE;
}

void MemoryDisk::Write(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces, Done done) {
  if (auto status = RefuseWrite(*file, offset, pieces); !status.ok()) return done(status);
  StartWrite(OwnFile(file), volume_->NewWrite(), offset, std::move(pieces), std::move(done));
}

void MemoryDisk::WriteSynced(FileRef file, uint64_t offset, std::vector<ConstBuffer> pieces,
                             Done done) {
  if (auto status = RefuseWrite(*file, offset, pieces); !status.ok()) return done(status);
  auto own = OwnFile(file);
  const uint64_t write = volume_->NewWrite();
  StartWrite(own, write, offset, std::move(pieces),
             [this, own, write, done = std::move(done)](absl::Status status) mutable {
               if (!status.ok()) return done(std::move(status));
               StartSync(own, write, std::move(done));
             });
}

void MemoryDisk::StartWrite(const std::shared_ptr<OpenFile>& own, uint64_t write, uint64_t offset,
                            std::vector<ConstBuffer> pieces, Done done) {
  auto fault = Strike(MemoryOperation::kWrite, own->path(), EndOf(offset, pieces));
  Event begin = NewEvent(Event::Kind::kWriteBegin);
  begin.inode = own->inode;
  begin.write = write;
  begin.offset = offset;
  for (const ConstBuffer& piece : pieces) begin.bytes.append(piece.data, piece.size);
  Event end = NewEvent(Event::Kind::kWriteEnd);
  end.inode = begin.inode;
  end.write = begin.write;
  end.bound = begin.bytes.size();
  if (fault.has_value() && fault->what == Fault::What::kFlipBit) {
    FlipBit(prng_, begin.bytes.data(), begin.bytes.size());
  }
  if (own->writable && !crashed_ && Reach(*own) == 0) {
    volume_->Apply(std::move(begin));
    Watch({.operation = MemoryOperation::kWrite, .path = own->path()});
  }
  Start(
      MemoryOperation::kWrite, std::move(fault),
      [this, own, offset, end, crc = CrcOf(pieces), pieces](const Fault* fault) {
        FOREBAY_CHECK(CrcOf(pieces) == crc);  // the buffer was the disk's until now
        return EndWrite(*own, end, offset, fault);
      },
      [path = own->path(), done = std::move(done)](int error) mutable {
        done(error == 0 ? absl::OkStatus() : ErrnoStatus(error, "write", path));
      });
}

int MemoryDisk::EndWrite(const OpenFile& file, Event end, uint64_t offset, const Fault* fault) {
  if (!file.writable) return EBADF;
  int error = Reach(file);
  const uint64_t footprint = volume_->footprint(file.inode), used = volume_->used_bytes();
  const uint64_t room = volume_->bytes_max > used ? volume_->bytes_max - used : 0;
  if (error != 0) {
    end.bound = 0;
  } else if (Is(fault, Fault::What::kFail)) {
    error = fault->error;
    end.bound = prng_.Below(end.bound + 1);
  } else if (offset + end.bound > footprint + room) {
    error = ENOSPC;
    end.bound = std::max(footprint + room, offset) - offset;
  } else if (Is(fault, Fault::What::kFailButHappened)) {
    error = fault->error;
  }
  moved_ = end.bound;
  volume_->Apply(std::move(end));
  return error;
}

void MemoryDisk::ReadPieces(FileRef file, uint64_t offset, std::vector<absl::Span<char>> pieces,
                            DoneWith<size_t> done) {
  if (auto status = RefuseRead(*file, offset, pieces); !status.ok()) return done(status);
  auto own = OwnFile(file);
  auto fault = Strike(MemoryOperation::kRead, own->path(), EndOf(offset, pieces));
  auto moved = std::make_shared<size_t>(0);
  Start(
      MemoryOperation::kRead, std::move(fault),
      [this, own, offset, pieces = std::move(pieces), moved](const Fault* fault) {
        const int error = ReadNow(*own, offset, pieces, fault);
        *moved = moved_;
        return error;
      },
      [path = own->path(), moved, done = std::move(done)](int error) mutable {
        error == 0 ? done(*moved) : done(ErrnoStatus(error, "read", path));
      });
}

int MemoryDisk::ReadNow(const OpenFile& file, uint64_t offset,
                        absl::Span<const absl::Span<char>> pieces, const Fault* fault) {
  if (const int error = Reach(file); error != 0) return error;
  if (Is(fault, Fault::What::kFail) || Is(fault, Fault::What::kFailButHappened)) {
    return fault->error;
  }
  const std::string& contents = volume_->contents(file.inode);
  uint64_t size = 0;
  for (const absl::Span<char> piece : pieces) size += piece.size();
  if (offset >= contents.size() || size == 0) return 0;
  moved_ = std::min<uint64_t>(size, contents.size() - offset);
  std::string bytes = contents.substr(offset, moved_);
  if (Is(fault, Fault::What::kFlipBit)) FlipBit(prng_, bytes.data(), bytes.size());
  std::string_view left = bytes;
  for (const absl::Span<char> piece : pieces) {
    const size_t part = left.copy(piece.data(), piece.size());
    left.remove_prefix(part);
  }
  return 0;
}

void MemoryDisk::Sync(FileRef file, Done done) { StartSync(OwnFile(file), 0, std::move(done)); }

void MemoryDisk::StartSync(const std::shared_ptr<OpenFile>& own, uint64_t write, Done done) {
  auto fault = Strike(MemoryOperation::kSync, own->path());
  Start(
      MemoryOperation::kSync, std::move(fault),
      // What completes from now on is not covered, though a real disk may take some of it along.
      [this, own, write, covered = volume_->sequence()](const Fault* fault) {
        return SyncNow(*own, write, covered, fault);
      },
      [path = own->path(), done = std::move(done)](int error) mutable {
        done(error == 0 ? absl::OkStatus() : ErrnoStatus(error, "sync", path));
      });
}

int MemoryDisk::SyncNow(const OpenFile& file, uint64_t write, uint64_t covered,
                        const Fault* fault) {
  if (const int error = Reach(file); error != 0) return error;
  const bool fails = Is(fault, Fault::What::kFail);
  Event sync = NewEvent(fails ? Event::Kind::kFailedSync : Event::Kind::kSync);
  sync.inode = file.inode;
  sync.write = write;
  sync.bound = covered;
  if (fails) sync.seed = prng_.Next();
  volume_->Apply(std::move(sync));
  return fails || Is(fault, Fault::What::kFailButHappened) ? fault->error : 0;
}

void MemoryDisk::Allocate(FileRef file, uint64_t bytes, Done done) {
  if (auto status = RefuseLength("allocate", *file, bytes); !status.ok()) return done(status);
  auto own = OwnFile(file);
  const auto act = [this, own, bytes] {
    if (!own->writable) return EBADF;
    if (const int error = Reach(*own); error != 0) return error;
    if (bytes == 0) return EINVAL;
    const uint64_t footprint = volume_->footprint(own->inode);
    if (bytes > footprint && volume_->used_bytes() + (bytes - footprint) > volume_->bytes_max) {
      return ENOSPC;
    }
    Event allocate = NewEvent(Event::Kind::kAllocate);
    allocate.inode = own->inode;
    allocate.offset = bytes;
    volume_->Apply(std::move(allocate));
    Watch({.operation = MemoryOperation::kAllocate, .path = own->path()});
    return 0;
  };
  StartAction(MemoryOperation::kAllocate, "allocate", own->path(), act, std::move(done));
}

void MemoryDisk::Truncate(FileRef file, uint64_t bytes, Done done) {
  if (auto status = RefuseLength("truncate", *file, bytes); !status.ok()) return done(status);
  auto own = OwnFile(file);
  const auto act = [this, own, bytes] {
    if (!own->writable) return EINVAL;
    if (const int error = Reach(*own); error != 0) return error;
    Event truncate = NewEvent(Event::Kind::kTruncate);
    truncate.inode = own->inode;
    truncate.offset = bytes;
    volume_->Apply(std::move(truncate));
    Watch({.operation = MemoryOperation::kTruncate, .path = own->path()});
    return 0;
  };
  StartAction(MemoryOperation::kTruncate, "truncate", own->path(), act, std::move(done));
}

// --- names ---

int MemoryDisk::ReachDirectoryOf(const std::string& path) const {
  const auto directory = volume_->Find(DirectoryOf(path));
  if (!directory.has_value()) return ENOENT;
  return *directory == MemoryVolume::kDirectory ? 0 : ENOTDIR;
}

void MemoryDisk::Open(std::string path, OpenOptions options, DoneWith<FileRef> done) {
  const std::string_view words = options.mode == OpenMode::kCreate ? "create" : "open";
  StartQuestion<FileRef>(
      MemoryOperation::kOpen, words, path,
      [this, plain = Plain(path), options](FileRef* file) { return OpenNow(plain, options, file); },
      std::move(done));
}

int MemoryDisk::OpenNow(const std::string& path, OpenOptions options, FileRef* file) {
  auto found = volume_->Find(path);
  if (options.mode == OpenMode::kCreate) {
    if (found.has_value()) return EEXIST;
    if (const int error = ReachDirectoryOf(path); error != 0) return error;
    Event create = NewEvent(Event::Kind::kCreate);
    create.path = path;
    create.inode = volume_->NextInode();
    found = create.inode;
    volume_->Apply(std::move(create));
  }
  if (!found.has_value()) return ENOENT;
  if (*found == MemoryVolume::kDirectory) return EISDIR;
  *file = std::make_shared<OpenFile>(path, options.direct && options_.direct, options.mode, *found,
                                     volume_);
  Watch({.operation = MemoryOperation::kOpen, .mode = options.mode, .path = path});
  return 0;
}

void MemoryDisk::Size(FileRef file, DoneWith<uint64_t> done) {
  auto own = OwnFile(file);
  const auto ask = [this, own](uint64_t* bytes) {
    const int error = Reach(*own);
    if (error == 0) *bytes = volume_->contents(own->inode).size();
    return error;
  };
  StartQuestion<uint64_t>(MemoryOperation::kSize, "stat", own->path(), ask, std::move(done));
}

void MemoryDisk::Rename(std::string from, std::string to, Done done) {
  std::string both = absl::StrCat(from, " to ", to);
  StartAction(
      MemoryOperation::kRename, "rename", std::move(both),
      [this, from = Plain(from), to = Plain(to)] { return RenameNow(from, to); }, std::move(done));
}

int MemoryDisk::RenameNow(const std::string& from, const std::string& to) {
  const auto inode = volume_->Find(from);
  if (!inode.has_value()) return ENOENT;
  if (const int error = ReachDirectoryOf(to); error != 0) return error;
  const auto replaced = volume_->Find(to);
  if (*inode == MemoryVolume::kDirectory) return EISDIR;  // this disk renames files alone
  if (replaced == MemoryVolume::kDirectory) return EISDIR;
  if (replaced == inode) return 0;
  Event rename = NewEvent(Event::Kind::kRename);
  rename.path = from;
  rename.to = to;
  volume_->Apply(std::move(rename));
  Watch({.operation = MemoryOperation::kRename, .path = from, .to = to});
  return 0;
}

void MemoryDisk::Unlink(std::string path, Done done) {
  StartAction(
      MemoryOperation::kUnlink, "unlink", path,
      [this, plain = Plain(path)] { return UnlinkNow(plain); }, std::move(done));
}

int MemoryDisk::UnlinkNow(const std::string& path) {
  const auto inode = volume_->Find(path);
  if (!inode.has_value()) return ENOENT;
  if (*inode == MemoryVolume::kDirectory) return EISDIR;
  Event unlink = NewEvent(Event::Kind::kUnlink);
  unlink.path = path;
  volume_->Apply(std::move(unlink));
  Watch({.operation = MemoryOperation::kUnlink, .path = path});
  return 0;
}

void MemoryDisk::MakeDirectory(std::string path, Done done) {
  StartAction(
      MemoryOperation::kMakeDirectory, "mkdir", path,
      [this, plain = Plain(path)] { return MakeDirectoryNow(plain); }, std::move(done));
}

int MemoryDisk::MakeDirectoryNow(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (const auto found = volume_->Find(part); !found.has_value()) {
      Event make = NewEvent(Event::Kind::kMakeDirectory);
      make.path = part;
      volume_->Apply(std::move(make));
    } else if (*found != MemoryVolume::kDirectory) {
      return ENOTDIR;
    }
    if (end == std::string::npos) return 0;
  }
}

void MemoryDisk::SyncDirectory(std::string path, Done done) {
  const auto act = [this, plain = Plain(path)] {
    const auto found = volume_->Find(plain);
    if (!found.has_value()) return ENOENT;
    if (*found != MemoryVolume::kDirectory) return ENOTDIR;
    Event sync = NewEvent(Event::Kind::kSyncDirectory);
    sync.path = plain;
    sync.bound = volume_->sequence();
    volume_->Apply(std::move(sync));
    return 0;
  };
  StartAction(MemoryOperation::kSyncDirectory, "sync directory", path, act, std::move(done));
}

void MemoryDisk::List(std::string path, DoneWith<std::vector<Entry>> done) {
  const auto ask = [this, plain = Plain(path)](std::vector<Entry>* entries) {
    const auto found = volume_->Find(plain);
    if (!found.has_value()) return ENOENT;
    if (*found != MemoryVolume::kDirectory) return ENOTDIR;
    for (const auto& [name, inode] : volume_->FilesIn(plain)) {
      entries->push_back({name, volume_->contents(inode).size()});
    }
    return 0;
  };
  StartQuestion<std::vector<Entry>>(MemoryOperation::kList, "list", path, ask, std::move(done));
}

void MemoryDisk::SpaceOf(std::string path, DoneWith<Space> done) {
  const auto ask = [this, plain = Plain(path)](Space* space) {
    if (!volume_->Find(plain).has_value()) return ENOENT;
    const uint64_t used = std::min(volume_->used_bytes(), volume_->bytes_max);
    *space = {.total_bytes = volume_->bytes_max, .free_bytes = volume_->bytes_max - used};
    return 0;
  };
  StartQuestion<Space>(MemoryOperation::kSpaceOf, "statvfs", path, ask, std::move(done));
}

// --- faults ---

void MemoryDisk::Inject(Fault fault) { faults_.push_back(std::move(fault)); }

void MemoryDisk::Hang() { hung_ = true; }

void MemoryDisk::Heal() {
  hung_ = false;
  faults_.clear();
  for (auto& [id, running] : running_) {
    if (Is(running.fault.has_value() ? &*running.fault : nullptr, Fault::What::kHang)) {
      running.fault.reset();
    }
    if (std::exchange(running.hangs, false)) Schedule(id);
  }
}

void MemoryDisk::FlipStoredBit(const std::string& path, uint64_t offset, uint32_t bit) {
  const auto inode = volume_->Find(Plain(path));
  FOREBAY_CHECK(inode.has_value() && offset < volume_->contents(*inode).size());
  Event flip = NewEvent(Event::Kind::kFlip);
  flip.inode = *inode;
  flip.offset = offset;
  flip.bound = bit;
  volume_->Apply(std::move(flip));
}

void MemoryDisk::Crash(CrashKind kind) {
  crashed_ = true;
  // What is under way may have happened; of writes the volume decides itself.
  for (auto& [id, running] : running_) {
    if (running.operation == MemoryOperation::kWrite) continue;
    if (running.operation == MemoryOperation::kRead) continue;
    if (OnNames(running.operation) && names_.front() != id) continue;
    if (prng_.Below(2) == 0) running.act(nullptr);
  }
  names_.clear();
  Event crash =
      NewEvent(kind == CrashKind::kProcess ? Event::Kind::kProcessCrash : Event::Kind::kPowerLoss);
  crash.seed = prng_.Next();
  volume_->Apply(std::move(crash));
  const auto dropped = std::exchange(running_, {});
}

}  // namespace forebay::io
