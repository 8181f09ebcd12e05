// A machine's log, whatever it is, with what the simulator wants to know: which commands are on
// their way through it, and each just before the loop applies it.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "base/check.h"
#include "node/log.h"

namespace forebay::simulation {

template <class Command>
class ObservedLog final : public node::Log<Command> {
 public:
  // `at_once`: believes everything committed that is appended.
  ObservedLog(bool at_once, std::function<void(const Command&)> committing)
      : at_once_(at_once), committing_(std::move(committing)) {}

  // Goes on after applied(), with nothing on its way.
  void Open(std::unique_ptr<node::Log<Command>> log) {
    FOREBAY_CHECK(commands_.empty());
    log_ = std::move(log);
  }
  // The loop that used it is gone.
  void Close() { log_ = nullptr; }
  // After Close: the command that was on its way for longest was committed, `found`, or not.
  Command TakeOldest(bool found) {
    Command oldest = std::move(commands_.front());
    commands_.pop_front();
    applied_.value += found ? 1 : 0;
    return oldest;
  }

  void Append(LogPosition position, const Command& command) override {
    commands_.push_back(command);
    log_->Append(position, command);
  }
  // The loop asks before each command that it applies, and nobody else does: what is committed
  // comes out one by one, so that each is seen at its time.
  LogPosition committed() const override {
    if (applied_ < (at_once_ ? appended() : log_->committed())) {
      const Command command = std::move(commands_.front());
      commands_.pop_front();
      ++applied_.value;
      committing_(command);
    }
    return applied_;
  }
  node::LogQueue queue() const override { return log_->queue(); }
  void Look(absl::AnyInvocable<void()> done) override { log_->Look(std::move(done)); }
  void Applied(LogPosition position) override { log_->Applied(position); }
  void Snapshot(LogPosition position, node::SnapshotDone done) override {
    log_->Snapshot(position, std::move(done));
  }

  LogPosition applied() const { return applied_; }
  LogPosition appended() const { return LogPosition(applied_.value + commands_.size()); }
  // Not applied yet.
  const std::deque<Command>& commands() const { return commands_; }

 private:
  const bool at_once_;
  const std::function<void(const Command&)> committing_;
  std::unique_ptr<node::Log<Command>> log_;
  mutable std::deque<Command> commands_;
  mutable LogPosition applied_;
};

}  // namespace forebay::simulation
