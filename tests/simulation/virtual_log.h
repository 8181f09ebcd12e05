// A log in virtual time: what is appended is committed a while later, several commands at once,
// which the loop then applies in one turn.
//
// Not thread-safe. It outlives its events.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "node/log.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"

namespace forebay::simulation {

template <class Command>
class VirtualLog final : public node::Log<Command> {
 public:
  struct Port {
    std::function<void(const Command&)> committing;  // just before the loop applies it
    std::function<void()> committed;                 // more is, unless that was within Append
    std::function<void(const Command&)> lost;
  };
  // `sync_ms_max` 0: what is appended is committed within Append.
  VirtualLog(uint64_t sync_ms_max, EventQueue* queue, Dice* dice, Port port)
      : sync_ms_max_(sync_ms_max), queue_(*queue), dice_(*dice), port_(std::move(port)) {}

  void Append(LogPosition, const Command& command) override {
    commands_.push_back(command);
    if (sync_ms_max_ == 0) {
      ++synced_;
    } else if (!syncing_) {
      Sync();
    }
  }
  // The loop asks before each command that it applies, and for nothing else: what is synced comes
  // out one by one, so that each is seen at its time.
  LogPosition committed() const override {
    if (taken_ < synced_) {
      port_.committing(commands_.front());
      commands_.pop_front();
      ++taken_;
    }
    return LogPosition(taken_);
  }

  const std::deque<Command>& unsynced() const { return commands_; }
  // The last command that was applied.
  LogPosition applied() const { return LogPosition(taken_); }

  // Power is lost: of what is not synced, the beginning may have reached the disk all the same, and
  // is committed; the rest is lost.
  void Crash() {
    ++life_;
    const uint64_t kept = dice_.Below(commands_.size() + 1);
    synced_ += kept;
    if (kept > 0) port_.committed();
    // What was appended meanwhile is lost too.
    for (const Command& command : commands_) port_.lost(command);
    commands_.clear();
    syncing_ = false;
  }

 private:
  void Sync() {
    syncing_ = true;
    queue_.After(dice_.Between(1, sync_ms_max_), [this, life = life_, count = commands_.size()] {
      // Often all at once, as a disk does it; else in batches of any size.
      const bool whole = dice_.OneIn(2);
      for (size_t left = count; left > 0;) {
        if (life != life_) return;
        const uint64_t batch = whole ? left : dice_.Between(1, left);
        synced_ += batch;
        left -= batch;
        port_.committed();
      }
      if (life != life_) return;
      syncing_ = false;
      if (!commands_.empty()) Sync();
    });
  }

  const uint64_t sync_ms_max_;
  EventQueue& queue_;
  Dice& dice_;
  const Port port_;
  mutable std::deque<Command> commands_;  // that are not applied
  mutable uint64_t taken_ = 0;            // commands so far
  uint64_t synced_ = 0;
  bool syncing_ = false;
  uint64_t life_ = 0;
};

}  // namespace forebay::simulation
