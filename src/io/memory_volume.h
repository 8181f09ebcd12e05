// Files in memory with a memory of what is durable: the state under the simulator's disks.
//
// Single-threaded and deterministic: equal events and seeds give equal contents. Several hosts may
// share a volume, as they share an NFS server; each has unsynced changes of its own.
//
// What a power loss leaves is at least what was synced. Each later change of a file may be there,
// lost, torn (a prefix, or any of its 512-byte sectors, each as it was at some moment since the
// sync), or may have left a length without the data. Names that were created, renamed or unlinked
// since their directory was synced have happened up to some moment, or any of them have, a rename
// wholly or not at all. After a failed sync what it covered is decided at once and never repaired
// by a later one, though reads still show it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace forebay::io {

class MemoryVolume {
 public:
  using Inode = uint64_t;
  static constexpr Inode kDirectory = 0;
  static constexpr uint64_t kSector = 512;

  // One change of the volume. All state follows from the events in their order.
  struct Event {
    enum class Kind : uint8_t {
      kMakeDirectory,  // path; durable at once, its parents exist
      kCreate,         // path, inode
      kRename,         // path, to
      kUnlink,         // path
      kSyncDirectory,  // path, bound
      kWriteBegin,     // inode, write, offset, bytes: from here on some of it may become durable
      kWriteEnd,       // inode, write, bound: so many of the bytes are there for readers
      kTruncate,       // inode, offset: the new length
      kAllocate,       // inode, offset: the length there is room for
      kSync,           // inode, bound; write: that one alone, if not 0
      kFailedSync,     // inode, bound, write, seed
      kFlip,           // inode, offset: of the byte, bound: which bit
      kProcessCrash,   // host, seed: writes that had begun have ended somewhere
      kPowerLoss,      // host, seed: unsynced changes are gone or not
    };
    Kind kind;
    uint32_t host = 0;
    std::string path, to;
    Inode inode = 0;
    uint64_t write = 0;
    uint64_t offset = 0;
    uint64_t bound = 0;  // for syncs: changes up to this sequence are covered
    uint64_t seed = 0;
    std::string bytes;
  };

  // Apply is the only way to change it, and checks nothing that its caller could have asked.
  void Apply(Event event);

  // --- questions ---
  // The inode or kDirectory.
  std::optional<Inode> Find(const std::string& path) const;
  const std::string& contents(Inode inode) const;
  // The host that took its last name, if it has none.
  std::optional<uint32_t> UnlinkedBy(Inode inode) const;
  // Files right below a directory, by name.
  std::vector<std::pair<std::string, Inode>> FilesIn(const std::string& directory) const;
  uint64_t used_bytes() const;
  // What a file takes of them: its length, or more if room was made.
  uint64_t footprint(Inode inode) const;
  Inode NextInode() const { return next_inode_; }
  uint64_t NewWrite() { return next_write_++; }
  // Of the last completed change; a sync that begins now covers all up to here.
  uint64_t sequence() const { return sequence_; }

  // --- open files keep their inode ---
  void Opened(Inode inode) { ++opens_[inode]; }
  void Closed(Inode inode);

  // --- limits ---
  uint64_t bytes_max = uint64_t{1} << 50;

  // --- power loss at any moment of a run ---
  // Keeps the events from here on.
  void Record();
  uint64_t events() const { return events_.size(); }
  // The volume as it may be found when the power of all hosts fails after the first `events`
  // recorded ones. Cheapest when asked in ascending order.
  std::shared_ptr<MemoryVolume> AfterPowerLoss(uint64_t events, uint64_t seed) const;

 private:
  struct Change {
    uint32_t host;
    uint64_t write;     // 0 for a truncation
    uint64_t sequence;  // 0 while the write is not completed
    uint64_t offset;    // or the length to truncate to
    std::string bytes;
    bool truncates() const { return write == 0; }
    uint64_t end() const { return offset + bytes.size(); }
  };
  struct FileState {
    std::string current, durable;
    std::vector<Change> unsynced;  // in the order of completion, then those that only began
    uint64_t allocated = 0;
    std::optional<uint32_t> unlinked_by;
  };
  struct NameChange {
    uint32_t host;
    uint64_t sequence;
    std::string from, to;  // either may be empty: created, unlinked
    Inode inode;
  };
  using Names = std::map<std::string, Inode>;

  static void ApplyTo(const Change& change, std::string* contents);
  static void ApplyTo(const NameChange& change, Names* names);
  // The parts of `changes` that survive, onto `durable`.
  static void Survive(const std::vector<Change>& changes, Prng& prng, std::string* durable);
  static void SurviveSectors(const std::vector<Change>& changes, Prng& prng, std::string* durable);
  // Changes for which `covered` holds leave the list.
  template <class Covered>
  static std::vector<Change> TakeUnsynced(FileState& file, Covered covered);

  void Do(const Event& event);
  void ChangeName(const Event& event, std::string from, std::string to, Inode inode);
  void BeginWrite(const Event& event, FileState& file);
  void EndWrite(const Event& event, FileState& file);
  void Truncate(const Event& event, FileState& file);
  void Sync(const Event& event, FileState& file);
  void SyncDirectory(const Event& event);
  void CrashProcess(const Event& event);
  void LosePower(uint32_t host, Prng& prng);
  void DropUnreferenced();

  std::map<Inode, FileState> files_;
  Names names_{{"/", kDirectory}};
  Names durable_names_{{"/", kDirectory}};
  std::vector<NameChange> unsynced_names_;
  std::map<Inode, uint64_t> opens_;
  Inode next_inode_ = 1;
  uint64_t next_write_ = 1;
  uint64_t sequence_ = 0;

  bool recording_ = false;
  std::vector<Event> events_;
  std::shared_ptr<const MemoryVolume> initial_;     // when recording began
  mutable std::shared_ptr<MemoryVolume> replayed_;  // after the first replayed_events_
  mutable uint64_t replayed_events_ = 0;
};

// The directory that holds the path, "/" at the top.
std::string DirectoryOf(const std::string& path);

}  // namespace forebay::io
