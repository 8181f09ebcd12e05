// The disk of one machine: the daemon's own journal on it, in virtual time, and what goes wrong
// with it.
//
// Not thread-safe. Logs go before Crash, and before this; the machine's state goes after them. What
// the disk does counts for no event of the history.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "io/memory_disk.h"
#include "node/directory_journal.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/options.h"
#include "tests/simulation/stats.h"

namespace forebay::simulation {

class MachineDisk {
 public:
  using CrashKind = io::MemoryDisk::CrashKind;
  using Failed = std::function<void(const absl::Status&)>;

  // `machine`: as the journal names it. `failed`: the log has; nothing is committed any more.
  MachineDisk(const HistoryOptions& options, std::string machine, EventQueue* queue, Dice* dice,
              Stats* stats, Failed failed);
  ~MachineDisk();
  MachineDisk(const MachineDisk&) = delete;
  MachineDisk& operator=(const MachineDisk&) = delete;

  // Brings a new state to what the disk has, which is nothing in the beginning.
  template <class State>
  absl::StatusOr<LogPosition> Recover(State* state) {
    recovering_ = true;
    auto found = journal_->Recover(state);
    recovery_.RunAll();
    recovering_ = false;
    return found;
  }
  // The same, but an operation may fail on the way.
  template <class State>
  absl::StatusOr<LogPosition> RecoverBadly(State* state) {
    FailSomeOperation();
    return Recover(state);
  }
  // `committed`: more is.
  template <class Command, class State>
  absl::StatusOr<std::unique_ptr<node::Log<Command>>> OpenLog(const State& state,
                                                              LogPosition applied,
                                                              std::function<void()> committed) {
    return journal_->OpenLog(
        state, applied, {.post = Post(0), .committed = [this, committed = std::move(committed)] {
                           NoteSynced();
                           committed();
                         }});
  }

  // The process ends, or the power fails. The next one finds the disk well and with room.
  void Crash(CrashKind kind);
  // Of what was synced, after a crash: anything but what only the very end of the log had, which
  // nobody can tell from a torn tail. False if there is nothing.
  bool FlipBit();

  // For a while the disk is slow, hangs, is full, or answers with an error.
  void Trouble();
  void Heal();
  // Since the last crash.
  bool troubled() const { return troubled_; }

 private:
  // Closures that the journal posted, and that are gone when it is.
  struct Posts {
    uint64_t last = 0;
    std::map<uint64_t, absl::AnyInvocable<void()>> waiting;
  };
  void Begin();
  storage::LogPost Post(uint64_t delay_ms_max);
  void After(uint64_t delay_ms, std::function<void()> work);
  void FailSomeOperation();
  void NoteSynced();
  std::string NewestLogFile() const;
  void FillUp();

  const HistoryOptions& options_;
  const std::string machine_, directory_;
  EventQueue& queue_;
  Dice& dice_;
  Stats& stats_;
  const Failed failed_;
  const std::shared_ptr<io::MemoryVolume> volume_ = std::make_shared<io::MemoryVolume>();
  io::ManualTime recovery_;  // goes on while a machine is recovered, and the history stands still
  bool recovering_ = false;
  bool troubled_ = false;
  uint64_t troubles_ = 0;
  uint64_t incarnation_ = 0;
  std::shared_ptr<Posts> posts_;
  std::unique_ptr<io::MemoryDisk> disk_;
  std::unique_ptr<node::DirectoryJournal> journal_;
  // The file that the log was written to, its length after the last batch, and before.
  std::string synced_file_;
  uint64_t synced_ = 0, synced_before_ = 0;
};

}  // namespace forebay::simulation
