#include "io/memory_volume.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace forebay::io {
namespace {

bool IsIn(const std::string& directory, const std::string& path) {
  return !path.empty() && path != "/" && DirectoryOf(path) == directory;
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  FOREBAY_CHECK(slash != std::string::npos);
  return slash == 0 ? "/" : path.substr(0, slash);
}

void MemoryVolume::Apply(Event event) {
  Do(event);
  if (recording_) events_.push_back(std::move(event));
}

void MemoryVolume::Do(const Event& event) {
  using Kind = Event::Kind;
  switch (event.kind) {
    case Kind::kMakeDirectory:
      names_[event.path] = kDirectory;
      durable_names_[event.path] = kDirectory;
      return;
    case Kind::kCreate:
      files_[event.inode];
      next_inode_ = std::max(next_inode_, event.inode + 1);
      return ChangeName(event, "", event.path, event.inode);
    case Kind::kRename:
      return ChangeName(event, event.path, event.to, names_.at(event.path));
    case Kind::kUnlink:
      return ChangeName(event, event.path, "", names_.at(event.path));
    case Kind::kSyncDirectory:
      return SyncDirectory(event);
    case Kind::kProcessCrash:
      return CrashProcess(event);
    case Kind::kPowerLoss: {
      Prng prng(event.seed);
      return LosePower(event.host, prng);
    }
    default:
      break;
  }
  // A replay has no open files, so an inode without a name may be gone.
  const auto found = files_.find(event.inode);
  if (found == files_.end()) return;
  FileState& file = found->second;
  switch (event.kind) {
    case Kind::kWriteBegin:
      return BeginWrite(event, file);
    case Kind::kWriteEnd:
      return EndWrite(event, file);
    case Kind::kTruncate:
      return Truncate(event, file);
    case Kind::kAllocate:
      file.allocated = std::max(file.allocated, event.offset);
      return;
    case Kind::kFlip:
      for (std::string* contents : {&file.current, &file.durable}) {
        if (event.offset < contents->size())
          (*contents)[event.offset] ^= char(1 << event.bound % 8);
      }
      return;
    default:
      return Sync(event, file);
  }
}

// --- contents ---

void MemoryVolume::ApplyTo(const Change& change, std::string* contents) {
  if (change.truncates()) {
    contents->resize(change.offset);
  } else if (!change.bytes.empty()) {
    if (contents->size() < change.end()) contents->resize(change.end());
    contents->replace(change.offset, change.bytes.size(), change.bytes);
  }
}

template <class Covered>
std::vector<MemoryVolume::Change> MemoryVolume::TakeUnsynced(FileState& file, Covered covered) {
  std::vector<Change> taken, left;
  for (Change& change : file.unsynced)
    (covered(change) ? taken : left).push_back(std::move(change));
  file.unsynced = std::move(left);
  return taken;
}

void MemoryVolume::BeginWrite(const Event& event, FileState& file) {
  file.unsynced.push_back({event.host, event.write, 0, event.offset, event.bytes});
}

void MemoryVolume::EndWrite(const Event& event, FileState& file) {
  for (Change& ended : TakeUnsynced(file, [&](auto& c) { return c.write == event.write; })) {
    if (event.bound == 0) continue;
    ended.bytes.resize(std::min<size_t>(ended.bytes.size(), event.bound));
    ended.sequence = ++sequence_;
    ApplyTo(ended, &file.current);
    // Behind what is completed, before what has only begun.
    const auto place = std::find_if(file.unsynced.begin(), file.unsynced.end(),
                                    [](const Change& c) { return c.sequence == 0; });
    file.unsynced.insert(place, std::move(ended));
  }
}

void MemoryVolume::Truncate(const Event& event, FileState& file) {
  Change change{event.host, 0, ++sequence_, event.offset, ""};
  ApplyTo(change, &file.current);
  const auto place = std::find_if(file.unsynced.begin(), file.unsynced.end(),
                                  [](const Change& c) { return c.sequence == 0; });
  file.unsynced.insert(place, std::move(change));
  file.allocated = std::min(file.allocated, event.offset);
}

void MemoryVolume::Sync(const Event& event, FileState& file) {
  const auto covered = TakeUnsynced(file, [&](const Change& c) {
    const bool asked = event.write == 0 || c.write == event.write;
    return asked && c.sequence != 0 && c.sequence <= event.bound;
  });
  if (event.kind == Event::Kind::kSync) {
    for (const Change& change : covered) ApplyTo(change, &file.durable);
    return;
  }
  Prng prng(event.seed);
  Survive(covered, prng, &file.durable);
}

void MemoryVolume::Survive(const std::vector<Change>& changes, Prng& prng, std::string* durable) {
  if (changes.empty()) return;
  uint64_t longest = 0;
  bool truncated = false;
  for (const Change& change : changes) {
    longest = std::max(longest, change.end());
    truncated = truncated || change.truncates();
  }
  switch (prng.Below(5)) {
    case 0:  // nothing
      break;
    case 1:  // everything
      for (const Change& change : changes) ApplyTo(change, durable);
      break;
    case 2: {  // the first ones, and the begin of one more
      const size_t whole = prng.Below(changes.size());
      for (size_t i = 0; i < whole; ++i) ApplyTo(changes[i], durable);
      Change torn = changes[whole];
      uint64_t end = torn.offset + prng.Below(torn.bytes.size() + 1);
      if (prng.Below(8) > 0) end = std::max(torn.offset, end / kSector * kSector);
      torn.bytes.resize(end - torn.offset);
      if (!torn.truncates()) ApplyTo(torn, durable);
      break;
    }
    case 3:  // any of them
      for (const Change& change : changes) {
        if (prng.Below(2) == 0) ApplyTo(change, durable);
      }
      break;
    default:
      SurviveSectors(changes, prng, durable);
  }
  // A file system may note the length before it has the data: zeros, or what the disk held before.
  if (!truncated && durable->size() < longest && prng.Below(4) == 0) {
    const size_t from = durable->size();
    durable->resize(from + 1 + prng.Below(longest - from));
    if (prng.Below(2) == 0) return;
    for (size_t i = from; i < durable->size(); ++i) (*durable)[i] = static_cast<char>(prng.Next());
  }
}

// Each sector as it was at some moment. A truncation is such a moment for all sectors.
void MemoryVolume::SurviveSectors(const std::vector<Change>& changes, Prng& prng,
                                  std::string* durable) {
  std::vector<size_t> moments{0};
  for (size_t i = 0; i < changes.size(); ++i) {
    if (changes[i].truncates()) moments.push_back(i + 1);
  }
  size_t next = moments[prng.Below(moments.size())];
  for (size_t i = 0; i < next; ++i) ApplyTo(changes[i], durable);
  std::map<uint64_t, std::vector<Change>> sectors;  // each change cut into its sectors
  for (; next < changes.size() && !changes[next].truncates(); ++next) {
    const Change& change = changes[next];
    for (uint64_t at = change.offset; at < change.end();) {
      const uint64_t end = std::min(change.end(), (at / kSector + 1) * kSector);
      sectors[at / kSector].push_back({change.host, change.write, change.sequence, at,
                                       change.bytes.substr(at - change.offset, end - at)});
      at = end;
    }
  }
  for (const auto& [sector, versions] : sectors) {
    const size_t until = prng.Below(versions.size() + 1);
    for (size_t i = 0; i < until; ++i) ApplyTo(versions[i], durable);
  }
}

// --- names ---

void MemoryVolume::ApplyTo(const NameChange& change, Names* names) {
  if (!change.from.empty()) {
    const auto found = names->find(change.from);
    if (found != names->end() && found->second == change.inode) names->erase(found);
  }
  if (!change.to.empty()) (*names)[change.to] = change.inode;
}

void MemoryVolume::ChangeName(const Event& event, std::string from, std::string to, Inode inode) {
  const auto found = names_.find(to);
  const Inode loses = to.empty() ? inode : found == names_.end() ? kDirectory : found->second;
  if (loses != kDirectory && (to.empty() || loses != inode)) {
    files_.at(loses).unlinked_by = event.host;
  }
  NameChange change{event.host, ++sequence_, std::move(from), std::move(to), inode};
  ApplyTo(change, &names_);
  unsynced_names_.push_back(std::move(change));
  DropUnreferenced();
}

void MemoryVolume::SyncDirectory(const Event& event) {
  std::vector<NameChange> left;
  for (NameChange& change : unsynced_names_) {
    const bool covered = change.sequence <= event.bound &&
                         (IsIn(event.path, change.from) || IsIn(event.path, change.to));
    if (covered) {
      ApplyTo(change, &durable_names_);
    } else {
      left.push_back(std::move(change));
    }
  }
  unsynced_names_ = std::move(left);
  DropUnreferenced();
}

// --- crashes ---

void MemoryVolume::CrashProcess(const Event& event) {
  Prng prng(event.seed);
  for (auto& [inode, file] : files_) {
    std::vector<std::pair<uint64_t, uint64_t>> begun;
    for (const Change& change : file.unsynced) {
      if (change.sequence == 0 && change.host == event.host) {
        begun.emplace_back(change.write, change.bytes.size());
      }
    }
    for (const auto& [write, bytes] : begun) {
      Event end{.kind = Event::Kind::kWriteEnd, .host = event.host, .write = write};
      end.bound = prng.Below(2) == 0 ? bytes : prng.Below(bytes + 1);
      EndWrite(end, file);
    }
  }
}

void MemoryVolume::LosePower(uint32_t host, Prng& prng) {
  const auto hers = [host](const auto& change) { return change.host == host; };
  for (auto& [inode, file] : files_) {
    Survive(TakeUnsynced(file, hers), prng, &file.durable);
    file.current = file.durable;
    for (const Change& change : file.unsynced) {
      if (change.sequence != 0) ApplyTo(change, &file.current);
    }
  }
  // A journal keeps the order of what happened to names; not every file system has one.
  const bool in_order = prng.Below(2) == 0;
  const auto count = std::count_if(unsynced_names_.begin(), unsynced_names_.end(), hers);
  const uint64_t first = prng.Below(static_cast<uint64_t>(count) + 1);
  uint64_t seen = 0;
  std::vector<NameChange> left;
  for (NameChange& change : unsynced_names_) {
    if (!hers(change)) {
      left.push_back(std::move(change));
    } else if (in_order ? seen++ < first : prng.Below(2) == 0) {
      ApplyTo(change, &durable_names_);
    }
  }
  unsynced_names_ = std::move(left);
  names_ = durable_names_;
  for (const NameChange& change : unsynced_names_) ApplyTo(change, &names_);
  for (const auto& [path, inode] : names_) {
    if (inode != kDirectory) files_.at(inode).unlinked_by.reset();
  }
  DropUnreferenced();
}

void MemoryVolume::DropUnreferenced() {
  std::set<Inode> named;
  for (const Names* names : {&names_, &durable_names_}) {
    for (const auto& [path, inode] : *names) named.insert(inode);
  }
  for (const NameChange& change : unsynced_names_) named.insert(change.inode);
  std::erase_if(files_, [&](const auto& file) {
    return !named.contains(file.first) && !opens_.contains(file.first);
  });
}

void MemoryVolume::Closed(Inode inode) {
  const auto found = opens_.find(inode);
  FOREBAY_CHECK(found != opens_.end());
  if (--found->second > 0) return;
  opens_.erase(found);
  DropUnreferenced();
}

// --- questions ---

std::optional<MemoryVolume::Inode> MemoryVolume::Find(const std::string& path) const {
  const auto found = names_.find(path);
  if (found == names_.end()) return std::nullopt;
  return found->second;
}

const std::string& MemoryVolume::contents(Inode inode) const { return files_.at(inode).current; }

std::optional<uint32_t> MemoryVolume::UnlinkedBy(Inode inode) const {
  return files_.at(inode).unlinked_by;
}

std::vector<std::pair<std::string, MemoryVolume::Inode>> MemoryVolume::FilesIn(
    const std::string& directory) const {
  std::vector<std::pair<std::string, Inode>> files;
  for (const auto& [path, inode] : names_) {
    if (inode == kDirectory || !IsIn(directory, path)) continue;
    files.emplace_back(path.substr(path.rfind('/') + 1), inode);
  }
  return files;
}

uint64_t MemoryVolume::footprint(Inode inode) const {
  const FileState& file = files_.at(inode);
  return std::max<uint64_t>(file.current.size(), file.allocated);
}

uint64_t MemoryVolume::used_bytes() const {
  uint64_t used = 0;
  for (const auto& [inode, file] : files_) {
    // What was unlinked takes no room, though a power loss may bring it back.
    if (file.unlinked_by.has_value() && !opens_.contains(inode)) continue;
    used += footprint(inode);
  }
  return used;
}

// --- record and replay ---

void MemoryVolume::Record() {
  auto initial = std::make_shared<MemoryVolume>(*this);
  initial->opens_.clear();
  initial->recording_ = false;
  initial->events_.clear();
  initial->initial_ = initial->replayed_ = nullptr;
  initial_ = std::move(initial);
  replayed_ = nullptr;
  recording_ = true;
  events_.clear();
}

std::shared_ptr<MemoryVolume> MemoryVolume::AfterPowerLoss(uint64_t events, uint64_t seed) const {
  FOREBAY_CHECK(initial_ != nullptr && events <= events_.size());
  if (replayed_ == nullptr || replayed_events_ > events) {
    replayed_ = std::make_shared<MemoryVolume>(*initial_);
    replayed_events_ = 0;
  }
  while (replayed_events_ < events) replayed_->Do(events_[replayed_events_++]);
  auto lost = std::make_shared<MemoryVolume>(*replayed_);
  Prng prng(seed);
  std::set<uint32_t> hosts{0};  // one at least, for what only caches had
  for (const auto& [inode, file] : lost->files_) {
    for (const Change& change : file.unsynced) hosts.insert(change.host);
  }
  for (const NameChange& change : lost->unsynced_names_) hosts.insert(change.host);
  for (const uint32_t host : hosts) lost->LosePower(host, prng);
  return lost;
}

}  // namespace forebay::io
