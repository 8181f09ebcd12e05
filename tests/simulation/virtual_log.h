// A log in virtual time: what is appended is committed a while later, several commands at once.
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
    std::function<void(const Command&)> committing;  // just before it counts as committed
    std::function<void()> committed;                 // after it, unless that was within Append
    std::function<void(const Command&)> lost;
  };
  // `sync_ms_max` 0: what is appended is committed within Append.
  VirtualLog(uint64_t sync_ms_max, EventQueue* queue, Dice* dice, Port port)
      : sync_ms_max_(sync_ms_max), queue_(*queue), dice_(*dice), port_(std::move(port)) {}

  void Append(LogPosition, const Command& command) override {
    unsynced_.push_back(command);
    if (sync_ms_max_ == 0) {
      CommitOne();
    } else if (!syncing_) {
      Sync();
    }
  }
  LogPosition committed() const override { return committed_; }

  const std::deque<Command>& unsynced() const { return unsynced_; }

  // Power is lost: of what is not synced, the beginning may have reached the disk all the same, and
  // is committed; the rest is lost.
  void Crash() {
    ++life_;
    for (uint64_t kept = dice_.Below(unsynced_.size() + 1); kept > 0; --kept) {
      CommitOne();
      port_.committed();
    }
    // What was appended meanwhile is lost too.
    for (const Command& command : unsynced_) port_.lost(command);
    unsynced_.clear();
    syncing_ = false;
  }

 private:
  void Sync() {
    syncing_ = true;
    queue_.After(dice_.Between(1, sync_ms_max_), [this, life = life_, count = unsynced_.size()] {
      if (life != life_) return;
      for (size_t i = 0; i < count; ++i) {
        CommitOne();
        port_.committed();
        if (life != life_) return;
      }
      syncing_ = false;
      if (!unsynced_.empty()) Sync();
    });
  }
  void CommitOne() {
    const Command command = std::move(unsynced_.front());
    unsynced_.pop_front();
    port_.committing(command);
    ++committed_.value;
  }

  const uint64_t sync_ms_max_;
  EventQueue& queue_;
  Dice& dice_;
  const Port port_;
  std::deque<Command> unsynced_;
  LogPosition committed_;
  bool syncing_ = false;
  uint64_t life_ = 0;
};

}  // namespace forebay::simulation
