// The way between clients and the node: messages are late, out of order, lost and repeated; clients
// ask again.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "tests/simulation/dice.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/node.h"
#include "tests/simulation/options.h"
#include "tests/simulation/stats.h"

namespace forebay::simulation {

class Network {
 public:
  Network(const HistoryOptions& options, EventQueue* queue, Dice* dice, Stats* stats)
      : options_(options), queue_(queue), dice_(dice), stats_(stats) {}

  void Heal() { faults_ = false; }

  void Deliver(std::function<void()> work) {
    if (faults_ && dice_->Chance(options_.loss)) return stats_->Count(Fault::kLost);
    if (faults_ && dice_->Chance(options_.repeat)) {
      stats_->Count(Fault::kRepeated);
      queue_->After(dice_->Between(1, options_.delay_ms_max), work);
    }
    queue_->After(dice_->Between(1, options_.delay_ms_max), std::move(work));
  }

  // Asks up to `tries` times, each time after `timeout_ms` without an answer. `done` is called
  // once: with the first answer, or with nothing.
  template <class R>
  void Call(std::function<void(Answer<R>)> at_node, std::function<void(std::optional<R>)> done,
            uint64_t wait_ms = 0, int tries = 5) {
    auto call = std::make_shared<Pending<R>>();
    call->at_node = std::move(at_node);
    call->done = std::move(done);
    call->timeout_ms = wait_ms + 500 + 3 * options_.delay_ms_max;
    Try(call, tries);
  }

 private:
  template <class R>
  struct Pending {
    std::function<void(Answer<R>)> at_node;
    std::function<void(std::optional<R>)> done;
    uint64_t timeout_ms = 0;
  };

  template <class R>
  void Try(std::shared_ptr<Pending<R>> call, int tries) {
    Deliver([this, call] {
      // The node does what it is asked although the client may have its answer already.
      auto at_node = call->at_node;
      if (!at_node) return queue_->Idle();
      at_node([this, call](R reply) {
        Deliver([this, call, reply = std::move(reply)] {
          if (!call->done) return queue_->Idle();
          auto done = std::exchange(call->done, nullptr);
          done(reply);
        });
      });
    });
    queue_->After(call->timeout_ms, [this, call, tries] {
      if (!call->done) return queue_->Idle();
      if (tries > 1) return Try(call, tries - 1);
      auto done = std::exchange(call->done, nullptr);
      done(std::nullopt);
    });
  }

  const HistoryOptions& options_;
  EventQueue* const queue_;
  Dice* const dice_;
  Stats* const stats_;
  bool faults_ = true;
};

}  // namespace forebay::simulation
