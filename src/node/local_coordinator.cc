#include "node/local_coordinator.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "storage/log_blocking.h"
#include "storage/replace_file.h"

namespace forebay::node {
namespace {

using Limits = CoordinatorLimits;

absl::Status TooMany(const char* what, size_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": there are ", limit, " already"));
}

// Whether keys are other ones afterwards; at `revision`, if so.
bool Change(const Transaction& transaction, uint64_t presence, bool farewell, LocalKeys* keys) {
  const uint64_t revision = keys->revision + 1;
  bool changed = false;
  for (const KeyChange& change : transaction.changes) {
    if (change.value.has_value()) {
      keys->entries[change.key] = {*change.value, revision, presence};
      changed = true;
      continue;
    }
    const auto found = keys->entries.find(change.key);
    if (found == keys->entries.end()) continue;
    if (farewell && found->second.presence != presence) continue;
    keys->entries.erase(found);
    changed = true;
  }
  if (changed) keys->revision = revision;
  return changed;
}

// Takes away what belongs to presences of a process that is no more.
bool DropPresences(LocalKeys* keys) {
  const size_t dropped =
      std::erase_if(keys->entries, [](const auto& entry) { return entry.second.presence != 0; });
  if (dropped > 0) ++keys->revision;
  return dropped > 0;
}

}  // namespace

class LocalCoordinator::WatchHandle final : public Watch {
 public:
  WatchHandle(LocalCoordinator* coordinator, uint64_t id, std::shared_ptr<Gate> gate)
      : coordinator_(coordinator), id_(id), gate_(std::move(gate)) {}
  ~WatchHandle() override {
    gate_->Close();
    --coordinator_->watches_count_;
    coordinator_->loop_->Post(
        [coordinator = coordinator_, id = id_] { coordinator->watches_.erase(id); });
  }

 private:
  LocalCoordinator* const coordinator_;
  const uint64_t id_;
  const std::shared_ptr<Gate> gate_;
};

class LocalCoordinator::PresenceHandle final : public Presence {
 public:
  PresenceHandle(LocalCoordinator* coordinator, uint64_t id, std::string key,
                 std::shared_ptr<CallbackGate<PresenceEvent>> gate)
      : coordinator_(coordinator), id_(id), key_(std::move(key)), gate_(std::move(gate)) {}
  ~PresenceHandle() override {
    gate_->Close();
    auto pending = std::make_shared<Pending>();
    pending->transaction.changes.push_back({key_, std::nullopt});
    pending->presence = id_;
    pending->farewell = true;
    // Nobody is left to be told of an error. What stays in the file goes with the next start.
    pending->done = [coordinator = coordinator_](const TransactionResult&) {
      --coordinator->presences_count_;
    };
    ++coordinator_->calls_;
    coordinator_->Enqueue(std::move(pending), absl::InfiniteDuration());
  }

 private:
  LocalCoordinator* const coordinator_;
  const uint64_t id_;
  const std::string key_;
  const std::shared_ptr<CallbackGate<PresenceEvent>> gate_;
};

absl::StatusOr<std::unique_ptr<LocalCoordinator>> LocalCoordinator::Open(
    io::Disk* disk, const std::string& folder) {
  storage::Blocking blocking(disk);
  FOREBAY_RETURN_IF_ERROR(blocking.MakeDirectory(folder));
  auto lock = storage::DirectoryLock::Take(folder);
  if (!lock.ok()) return lock.status();
  auto keys = ReadCoordinatorFile(&blocking, folder);
  const bool fresh = io::ErrorOf(keys.status()) == ENOENT;
  // As etcd's: revision 1 is that of the empty beginning.
  if (fresh) keys = LocalKeys{.entries = {}, .revision = 1};
  if (!keys.ok()) return keys.status();
  if (DropPresences(&*keys) || fresh) {
    FOREBAY_RETURN_IF_ERROR(
        storage::ReplaceFile(&blocking, folder, kCoordinatorFile, EncodeKeys(*keys)));
  }
  return std::unique_ptr<LocalCoordinator>(
      new LocalCoordinator(disk, folder, *std::move(lock), *std::move(keys)));
}

LocalCoordinator::LocalCoordinator(io::Disk* disk, std::string folder, storage::DirectoryLock lock,
                                   LocalKeys keys)
    : disk_(disk),
      folder_(std::move(folder)),
      lock_(std::move(lock)),
      keys_(std::move(keys)),
      forgotten_(keys_.revision),
      loop_(std::make_unique<EventLoop>()),
      writer_(std::make_unique<EventLoop>()) {}

LocalCoordinator::~LocalCoordinator() {
  FOREBAY_CHECK(watches_count_ == 0);
  Notification closed;
  loop_->Post([this, &closed] {
    closing_ = true;
    for (const auto& pending : std::exchange(queue_, {})) {
      Answer(pending.get(), {.outcome = Outcome::kNotDone,
                             .why = absl::CancelledError("the coordinator is closed")});
    }
    closed.Notify();
  });
  closed.Wait();
  // The one that is written comes to its end, and tells it to the loop.
  writer_->Stop();
  loop_->Stop();
  FOREBAY_CHECK(presences_count_ == 0);
}

template <class Refuse>
bool LocalCoordinator::Admit(Refuse refuse) {
  if (++calls_ <= Limits::kCallsMax) return true;
  --calls_;
  refuse(TooMany("calls", Limits::kCallsMax));
  return false;
}

void LocalCoordinator::Get(std::string key, absl::Duration /*timeout*/, StateDone done) {
  if (absl::Status status = CheckKey(key); !status.ok()) return done(status);
  if (!Admit([&done](absl::Status status) { done(std::move(status)); })) return;
  loop_->Post([this, key = std::move(key), done = std::move(done)]() mutable {
    --calls_;
    if (absl::Status why = Health().why; !why.ok()) return done(why);
    KeyState state{.entries = {}, .revision = keys_.revision};
    if (KeyValue entry = keys_.At(key); entry.revision != 0) {
      state.entries.push_back(std::move(entry));
    }
    done(std::move(state));
  });
}

void LocalCoordinator::GetPrefix(std::string prefix, absl::Duration /*timeout*/, StateDone done) {
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return done(status);
  if (!Admit([&done](absl::Status status) { done(std::move(status)); })) return;
  loop_->Post([this, prefix = std::move(prefix), done = std::move(done)]() mutable {
    --calls_;
    if (absl::Status why = Health().why; !why.ok()) return done(why);
    done(keys_.Under(prefix));
  });
}

void LocalCoordinator::Commit(Transaction transaction, absl::Duration timeout,
                              TransactionDone done) {
  const auto refuse = [&done](absl::Status status) {
    done({.outcome = Outcome::kNotDone, .why = std::move(status)});
  };
  if (absl::Status status = CheckTransaction(transaction); !status.ok()) return refuse(status);
  if (!Admit(refuse)) return;
  auto pending = std::make_shared<Pending>();
  pending->transaction = std::move(transaction);
  pending->done = std::move(done);
  Enqueue(std::move(pending), timeout);
}

void LocalCoordinator::Enqueue(std::shared_ptr<Pending> pending, absl::Duration timeout) {
  const Deadline deadline = DeadlineIn(timeout);
  loop_->Post([this, pending = std::move(pending), deadline]() mutable {
    if (closing_) {
      return Answer(pending.get(), {.outcome = Outcome::kNotDone,
                                    .why = absl::CancelledError("the coordinator is closed")});
    }
    pending->timer = loop_->At(deadline, [this, pending] {
      if (pending->done) TimedOut(pending.get(), writing_ == pending);
    });
    queue_.push_back(std::move(pending));
    Next();
  });
}

void LocalCoordinator::TimedOut(Pending* pending, bool is_written) {
  if (is_written) {
    return Answer(pending, {.outcome = Outcome::kUnknown,
                            .why = absl::DeadlineExceededError(absl::StrCat(
                                folder_, "/", kCoordinatorFile, ": is being written"))});
  }
  std::erase_if(queue_, [pending](const auto& queued) { return queued.get() == pending; });
  Answer(pending, {.outcome = Outcome::kNotDone,
                   .why = absl::DeadlineExceededError(absl::StrCat(
                       folder_, "/", kCoordinatorFile, ": others are written before"))});
}

void LocalCoordinator::Answer(Pending* pending, TransactionResult result) {
  if (!pending->done) return;
  loop_->Cancel(pending->timer);
  TransactionDone done = std::exchange(pending->done, nullptr);
  --calls_;
  done(std::move(result));
}

void LocalCoordinator::Next() {
  while (writing_ == nullptr && !queue_.empty()) {
    std::shared_ptr<Pending> pending = std::move(queue_.front());
    queue_.pop_front();
    if (Decide(pending.get())) Write(std::move(pending));
  }
}

bool LocalCoordinator::Decide(Pending* pending) {
  if (absl::Status why = Health().why; !why.ok()) {
    Answer(pending, {.outcome = Outcome::kNotDone, .why = why});
    return false;
  }
  TransactionResult refused{.outcome = Outcome::kRefused, .revision = keys_.revision};
  bool holds = true;
  for (const KeyCondition& condition : pending->transaction.conditions) {
    refused.now.push_back(keys_.At(condition.key));
    holds &= refused.now.back().revision == condition.revision;
  }
  if (!holds) {
    Answer(pending, std::move(refused));
    return false;
  }
  pending->after = keys_;
  if (!Change(pending->transaction, pending->presence, pending->farewell, &pending->after)) {
    Answer(pending, {.outcome = Outcome::kDone, .revision = keys_.revision});
    return false;
  }
  pending->disk_bytes = EncodeKeys(pending->after);
  if (pending->disk_bytes.size() <= Limits::kStateBytesMax) return true;
  Answer(pending, {.outcome = Outcome::kNotDone,
                   .why = TooMany("bytes in the coordinator's file", Limits::kStateBytesMax)});
  return false;
}

void LocalCoordinator::Write(std::shared_ptr<Pending> pending) {
  writing_ = std::move(pending);
  writer_->Post([this, bytes = std::move(writing_->disk_bytes)] {
    storage::Blocking blocking(disk_);
    Outcome outcome = Outcome::kNotDone;
    absl::Status status = lock_.Check();
    if (status.ok()) status = storage::WriteAside(&blocking, folder_, kCoordinatorFile, bytes);
    if (status.ok()) {
      status = storage::PutInPlace(&blocking, folder_, kCoordinatorFile);
      outcome = status.ok() ? Outcome::kDone : Outcome::kUnknown;
    }
    loop_->Post([this, outcome, status] {
      const auto written = std::exchange(writing_, nullptr);
      Written(written.get(), outcome, status);
      Next();
    });
  });
}

void LocalCoordinator::Written(Pending* pending, Outcome outcome, const absl::Status& status) {
  if (outcome == Outcome::kUnknown) {
    MutexLock lock(&health_mutex_);
    broken_ = status;
    broken_since_ = std::chrono::steady_clock::now();
  }
  if (outcome != Outcome::kDone) return Answer(pending, {.outcome = outcome, .why = status});
  const uint64_t before = keys_.revision;
  Remember(std::exchange(keys_, std::move(pending->after)), pending->transaction);
  Answer(pending, {.outcome = outcome, .revision = keys_.revision});
  Tell(before);
}

void LocalCoordinator::Remember(const LocalKeys& before, const Transaction& transaction) {
  for (const KeyChange& change : transaction.changes) {
    const auto now = keys_.entries.find(change.key);
    const bool there = now != keys_.entries.end();
    if (there && now->second.revision != keys_.revision) continue;
    if (!there && !before.entries.contains(change.key)) continue;
    history_.push_back({change.key, change.value, keys_.revision});
    history_bytes_ += change.key.size() + change.value.value_or("").size();
  }
  while (history_.size() > kHistoryMax || history_bytes_ > kHistoryBytesMax) {
    const WatchedChange& oldest = history_.front();
    forgotten_ = oldest.revision;
    history_bytes_ -= oldest.key.size() + oldest.value.value_or("").size();
    history_.pop_front();
  }
}

void LocalCoordinator::Tell(uint64_t revision_before) {
  std::vector<WatchedChange> news;
  for (auto at = history_.rbegin(); at != history_.rend() && at->revision > revision_before; ++at) {
    news.push_back(*at);
  }
  std::reverse(news.begin(), news.end());
  // A callback may end watches and, by another thread, begin some: both come after this.
  for (const auto& [id, watched] : watches_) {
    WatchEvent event{.kind = WatchEvent::Kind::kChanges, .revision = keys_.revision};
    for (const WatchedChange& change : news) {
      if (absl::StartsWith(change.key, watched.prefix)) event.changes.push_back(change);
    }
    if (!event.changes.empty()) watched.gate->Run(std::move(event));
  }
}

void LocalCoordinator::StartWatch(const WatchOptions& options, const std::shared_ptr<Gate>& gate) {
  const auto tell_state = [&] {
    KeyState state = keys_.Under(options.prefix);
    gate->Run({.kind = WatchEvent::Kind::kState,
               .entries = std::move(state.entries),
               .revision = state.revision});
  };
  if (!options.after.has_value()) return tell_state();
  if (*options.after < forgotten_ || *options.after > keys_.revision) {
    gate->Run({.kind = WatchEvent::Kind::kCompacted, .revision = forgotten_ + 1});
    return tell_state();
  }
  WatchEvent event{.kind = WatchEvent::Kind::kChanges};
  for (const WatchedChange& change : history_) {
    if (change.revision <= *options.after || !absl::StartsWith(change.key, options.prefix))
      continue;
    event.changes.push_back(change);
    event.revision = change.revision;
  }
  if (!event.changes.empty()) gate->Run(std::move(event));
}

absl::StatusOr<std::unique_ptr<Watch>> LocalCoordinator::WatchPrefix(WatchOptions options,
                                                                     WatchCallback callback) {
  FOREBAY_RETURN_IF_ERROR(CheckPrefix(options.prefix));
  if (++watches_count_ > Limits::kWatchesMax) {
    --watches_count_;
    return TooMany("watches", Limits::kWatchesMax);
  }
  auto gate = std::make_shared<Gate>(std::move(callback));
  const uint64_t id = ++ids_;
  loop_->Post([this, id, options = std::move(options), gate] {
    watches_[id] = {options.prefix, gate};
    StartWatch(options, gate);
  });
  return std::make_unique<WatchHandle>(this, id, std::move(gate));
}

absl::StatusOr<std::unique_ptr<Presence>> LocalCoordinator::Announce(PresenceOptions options,
                                                                     PresenceCallback callback) {
  FOREBAY_RETURN_IF_ERROR(CheckPresence(options));
  if (++presences_count_ > Limits::kPresencesMax) {
    --presences_count_;
    return TooMany("presences", Limits::kPresencesMax);
  }
  auto gate = std::make_shared<CallbackGate<PresenceEvent>>(std::move(callback));
  const uint64_t id = ++ids_;
  auto pending = std::make_shared<Pending>();
  pending->presence = id;
  pending->transaction.changes.push_back({options.key, options.value});
  pending->done = [gate](const TransactionResult& result) {
    const bool held = result.outcome == Outcome::kDone;
    gate->Run({.kind = held ? PresenceEvent::Kind::kHeld : PresenceEvent::Kind::kLost,
               .revision = result.revision,
               .why = result.why});
  };
  ++calls_;
  Enqueue(std::move(pending), absl::InfiniteDuration());
  return std::make_unique<PresenceHandle>(this, id, std::move(options.key), std::move(gate));
}

CoordinatorHealth LocalCoordinator::Health() const {
  CoordinatorHealth health{.where = absl::StrCat(folder_, "/", kCoordinatorFile)};
  MutexLock lock(&health_mutex_);
  health.reachable = broken_.ok();
  health.why = broken_;
  if (!broken_.ok()) {
    health.unreachable = absl::FromChrono(std::chrono::steady_clock::now() - broken_since_);
  }
  return health;
}

}  // namespace forebay::node
