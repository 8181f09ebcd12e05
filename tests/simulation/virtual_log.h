// A log in virtual time that has no disk: what is appended is committed a while later, several
// commands at once, which the loop then applies in one turn.
//
// Not thread-safe. Its events may outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "node/log.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"

namespace forebay::simulation {

template <class Command>
class VirtualLog final : public node::Log<Command> {
 public:
  // `sync_ms_max` 0: what is appended is committed at once.
  VirtualLog(LogPosition last, uint64_t sync_ms_max, EventQueue* queue, Dice* dice,
             std::function<void()> committed)
      : sync_ms_max_(sync_ms_max),
        queue_(*queue),
        dice_(*dice),
        on_committed_(std::move(committed)),
        appended_(last),
        committed_(last) {}

  void Append(LogPosition position, const Command&) override {
    appended_ = position;
    if (sync_ms_max_ == 0) {
      committed_ = position;
    } else if (!syncing_) {
      Sync();
    }
  }
  LogPosition committed() const override { return committed_; }

 private:
  void Sync() {
    syncing_ = true;
    const std::weak_ptr<VirtualLog*> self = self_;
    queue_.After(dice_.Between(1, sync_ms_max_), [self, upto = appended_] {
      if (const auto log = self.lock()) (*log)->Synced(upto);
    });
  }
  // Often all at once, as a disk does it; else in batches of any size.
  void Synced(LogPosition upto) {
    const bool whole = dice_.OneIn(2);
    while (committed_ < upto) {
      const uint64_t left = upto.value - committed_.value;
      committed_.value += whole ? left : dice_.Between(1, left);
      on_committed_();
    }
    syncing_ = false;
    if (committed_ < appended_) Sync();
  }

  const uint64_t sync_ms_max_;
  EventQueue& queue_;
  Dice& dice_;
  const std::function<void()> on_committed_;
  LogPosition appended_, committed_;
  bool syncing_ = false;
  const std::shared_ptr<VirtualLog*> self_ = std::make_shared<VirtualLog*>(this);
};

}  // namespace forebay::simulation
