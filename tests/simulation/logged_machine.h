// A machine of a Node but for its loop: its state, its log, in memory or on a disk with faults, and
// its twin, a second replica that never restarts.
//
// Not thread-safe. Loops go before Restart, and before this.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "codec/archive.h"
#include "codec/snapshot_parts.h"
#include "tests/simulation/invariants/committed_entries_stay.h"
#include "tests/simulation/machine_disk.h"
#include "tests/simulation/observed_log.h"
#include "tests/simulation/virtual_log.h"

namespace forebay::simulation {

inline constexpr const char* kEqualHash = "7 equal position, equal hash";

// A snapshot of a twin that is written a piece a command, as the daemon's are while their machines
// go on.
template <class State>
class TwinSnapshot {
 public:
  // Before a command. False if what is written is not of its moment.
  bool Step(const State& twin) {
    if (parts_ == nullptr) {
      if (++commands_ % kCommandsBetween != 0) return true;
      expected_ = twin.Hash();
      written_.clear();
      parts_ = std::make_unique<codec::Parts>();
      twin.Snapshot(parts_->writer());
      return true;
    }
    if (codec::Piece piece = parts_->Next()) {
      piece(&written_);
      return true;
    }
    parts_ = nullptr;
    return Hash64(written_) == expected_;
  }

 private:
  static constexpr uint64_t kCommandsBetween = 50;
  std::unique_ptr<codec::Parts> parts_;
  std::string written_;
  uint64_t expected_ = 0;  // hash
  uint64_t commands_ = 0;
};

// What a history is made of, for its machines.
struct Surroundings {
  const HistoryOptions& options;
  EventQueue* queue;
  Dice* dice;
  Stats* stats;
  std::function<void(const char* invariant, const std::string& what)> alarm;
};

template <class C, class S, class E>
class LoggedMachine {
 public:
  struct Port {
    std::function<void()> committed;           // more is: the loop's turn
    std::function<void(const C&)> committing;  // just before it is applied
    std::function<void(const E&)> of_twin;     // what came of it there
    // It was committed, and not applied when the machine ended: nobody heard of its effects.
    std::function<void(const C&, E& effects)> recovered;
    std::function<void(const C&)> lost;
    std::function<void()> failed;  // the log
  };

  // `name`: as the journal has it.
  LoggedMachine(const Surroundings& around, std::string name,
                std::function<std::unique_ptr<S>()> make, Port port)
      : around_(around),
        name_(std::move(name)),
        make_(std::move(make)),
        port_(std::move(port)),
        state_(make_()),
        twin_(make_()),
        log_(around.options.commit_unsynced, [this](const C& command) { Committing(command); }) {
    if (around_.options.disk) {
      disk_.emplace(around_.options, name_, around_.queue, around_.dice, around_.stats,
                    [this](const absl::Status& status) { Failed(status); });
      const auto nothing = disk_->Recover(state_.get());
      FOREBAY_CHECK(nothing.ok() && *nothing == LogPosition());
    }
    Open();
  }

  // While it is recovered, as far as that has come.
  const S& state() const { return recovering_ ? *twin_ : *state_; }
  S* mutable_state() { return state_.get(); }
  const S& twin() const { return *twin_; }
  ObservedLog<C>& log() { return log_; }
  const ObservedLog<C>& log() const { return log_; }
  MachineDisk* disk() { return disk_ ? &*disk_ : nullptr; }

  // The process ends, or its power fails, and a new one recovers the state. `flip`: in between a
  // bit of what is stored changes. False when the new one refuses to go on because of that, as it
  // must; or when the history is over by an alarm.
  bool Restart(MachineDisk::CrashKind kind, bool flip) {
    log_.Close();
    std::unique_ptr<S> restored = make_();
    LogPosition found(log_.applied().value + around_.dice->Below(log_.commands().size() + 1));
    if (disk_ && !Recover(kind, flip, restored.get(), &found)) return false;
    recovering_ = true;
    while (!log_.commands().empty()) {
      const bool kept = log_.applied() < found;
      const C command = log_.TakeOldest(kept);
      kept ? Recovered(command) : port_.lost(command);
    }
    recovering_ = false;
    if (!disk_ && !TakeSnapshotOfTwin(restored.get())) return false;
    if (restored->Hash() != twin_->Hash()) {
      Alarm(kEqualHash, absl::StrCat("the restored ", name_, " has another hash"));
      return false;
    }
    state_ = std::move(restored);
    Open();
    return true;
  }

 private:
  void Alarm(const char* invariant, const std::string& what) { around_.alarm(invariant, what); }

  void Open() {
    if (!disk_) {
      log_.Open(std::make_unique<VirtualLog<C>>(log_.applied(), around_.options.sync_ms_max,
                                                around_.queue, around_.dice, port_.committed));
      return;
    }
    auto opened = disk_->OpenLog<C>(*state_, log_.applied(), port_.committed);
    FOREBAY_CHECK(opened.ok());
    log_.Open(*std::move(opened));
  }

  // What goes through the log comes out the same.
  C ThroughEncoding(const C& command) {
    const std::string bytes = codec::Encode(command);
    C decoded;
    if (!codec::Decode(bytes, &decoded) || codec::Encode(decoded) != bytes)
      Alarm(kEqualHash, absl::StrCat("command ", command.index(), " changes by its encoding"));
    return decoded;
  }
  E ApplyToTwin(const C& command, uint64_t tag) {
    port_.committing(command);
    const C decoded = ThroughEncoding(command);
    if (!twin_snapshot_.Step(*twin_)) {
      Alarm(kEqualHash,
            "a snapshot that was written while commands were applied is not of its moment");
    }
    E effects;
    twin_->Apply(decoded, tag, &effects);
    port_.of_twin(effects);
    return effects;
  }
  void Committing(const C& command) { ApplyToTwin(command, 0); }
  void Recovered(const C& command) {
    E effects = ApplyToTwin(command, 1);
    port_.recovered(command, effects);
  }

  // Into `restored`, up to `found`, by what the disk has.
  bool Recover(MachineDisk::CrashKind kind, bool flip, S* restored, LogPosition* found) {
    disk_->Crash(kind);
    if (flip && disk_->FlipBit()) {
      around_.stats->Count(Fault::kFlip);
      flipped_ = true;
    }
    CommittedEntriesStay stay{.committed = log_.applied(), .logged = log_.appended()};
    if (around_.dice->OneIn(4)) {
      // The first attempt ends in its midst, or when it is done.
      const auto first = disk_->RecoverBadly(make_().get());
      if (first.ok()) stay.committed = std::max(stay.committed, *first);
      disk_->Crash(MachineDisk::CrashKind::kPower);
    }
    const auto recovered = disk_->Recover(restored);
    if (!recovered.ok()) {
      if (flipped_ && absl::IsDataLoss(recovered.status())) return false;
      Alarm(CommittedEntriesStay::kName, recovered.status().ToString());
      return false;
    }
    *found = *recovered;
    const std::string wrong = stay.Check(name_, *found);
    if (wrong.empty()) return true;
    Alarm(CommittedEntriesStay::kName, wrong);
    return false;
  }

  bool TakeSnapshotOfTwin(S* restored) {
    std::string bytes;
    codec::Writer writer(&bytes);
    twin_->Snapshot(writer);
    codec::Reader reader(bytes);
    if (restored->Restore(reader) && reader.Done()) return true;
    Alarm(kEqualHash, absl::StrCat("the ", name_, " does not take its own snapshot"));
    return false;
  }

  void Failed(const absl::Status& status) {
    if (!disk_->troubled()) {
      Alarm(
          CommittedEntriesStay::kName,
          absl::StrCat("the log of ", name_, " fails on a disk that is well: ", status.ToString()));
    }
    port_.failed();
  }

  const Surroundings around_;
  const std::string name_;
  const std::function<std::unique_ptr<S>()> make_;
  const Port port_;
  std::unique_ptr<S> state_;
  const std::unique_ptr<S> twin_;
  TwinSnapshot<S> twin_snapshot_;
  bool recovering_ = false;
  bool flipped_ = false;  // ever
  std::optional<MachineDisk> disk_;
  ObservedLog<C> log_;
};

}  // namespace forebay::simulation
