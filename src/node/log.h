// Where a state machine's commands become durable before Apply sees them, and the commands on that
// way.
//
// Called from the loop that owns it; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"

namespace forebay::node {

// What a log holds that is not durable yet.
struct LogQueue {
  uint64_t bytes = 0;
  uint64_t bytes_max = 0;   // 0: no limit
  bool replicated = false;  // other nodes are waited for, too
  bool full() const { return bytes_max > 0 && bytes >= bytes_max; }
};

// A state's snapshot on disk.
struct SnapshotPlace {
  LogPosition position;  // 0: nothing was ever logged, and nothing is there
  uint64_t bytes = 0;
  std::string file;
};
using SnapshotDone = absl::AnyInvocable<void(absl::StatusOr<SnapshotPlace>)>;

// Of one machine of several.
struct MachineSnapshot {
  std::string machine;  // "ledger", "shard-0", ...
  SnapshotPlace place;
};
using SnapshotsDone = absl::AnyInvocable<void(absl::StatusOr<std::vector<MachineSnapshot>>)>;

template <class Command>
class Log {
 public:
  virtual ~Log() = default;
  // Begins to make the command durable at `position`, the one after the last. When it is, the log
  // raises committed(), perhaps before this returns, and sees to it that the loop's OnCommitted is
  // called if it was later.
  virtual void Append(LogPosition position, const Command& command) = 0;
  // Everything up to here is durable. Never goes back.
  virtual LogPosition committed() const = 0;
  // While it is full, whoever can make others wait does so; Append itself never refuses. It comes
  // to an end with a rise of committed().
  virtual LogQueue queue() const { return {}; }
  // From time to time, and at a clean end: looks whether its file is still there, which ends it if
  // not, and notes what is durable. `done`, if any, is called in the loop, perhaps never.
  virtual void Look(absl::AnyInvocable<void()> done) {
    if (done) done();
  }
  // The state is at this position now; between two commands, a chance for a snapshot.
  virtual void Applied(LogPosition position) { (void)position; }
  // Snapshots the state, which is at this position, whether it is time or not. `done` is called
  // once, in the loop, perhaps before this returns; never if the log goes before.
  virtual void Snapshot(LogPosition position, SnapshotDone done) {
    (void)position;
    done(absl::FailedPreconditionError(
        "the run lives in memory alone: there is nowhere to put a snapshot (storage.directory)"));
  }
};

// Keeps nothing: what is appended is committed at once, and gone with the process.
template <class Command>
class NullLog final : public Log<Command> {
 public:
  void Append(LogPosition position, const Command&) override { last_ = position; }
  LogPosition committed() const override { return last_; }

 private:
  LogPosition last_;
};

// Commands from their proposal to their commit, in the order of the log.
template <class Tag, class Command>
class Proposed {
 public:
  // `applied`: the last position that the state has seen.
  Proposed(Log<Command>* log, LogPosition applied) : log_(log), applied_(applied), last_(applied) {}

  void Append(Tag tag, Command&& command) {
    ++last_.value;
    log_->Append(last_, command);
    commands_.emplace_back(tag, std::move(command));
  }
  // Takes the oldest one if it is committed: it is to be applied now.
  bool Take(std::pair<Tag, Command>* out) {
    if (commands_.empty() || log_->committed() <= applied_) return false;
    ++applied_.value;
    *out = std::move(commands_.front());
    commands_.pop_front();
    return true;
  }

  // Nothing is left to take for now.
  void Rest() { log_->Applied(applied_); }

  // Of the state as it is now, between two commands.
  void Snapshot(SnapshotDone done) { log_->Snapshot(applied_, std::move(done)); }

  LogPosition applied() const { return applied_; }
  LogQueue queue() const { return log_->queue(); }
  size_t size() const { return commands_.size(); }

 private:
  Log<Command>* const log_;
  LogPosition applied_;
  LogPosition last_;
  std::deque<std::pair<Tag, Command>> commands_;
};

}  // namespace forebay::node
