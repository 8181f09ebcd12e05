#include "tests/cluster_simulation/coordinator.h"

#include <memory>
#include <utility>

#include "base/check.h"

namespace forebay::cluster_simulation {

void Coordinator::Create(const cluster::Configuration& first) {
  keys_.emplace_back();
  Set(static_cast<uint32_t>(keys_.size() - 1), first);
}

cluster::Configuration Coordinator::At(uint32_t machine) const {
  const auto configuration = cluster::DecodeConfiguration(keys_[machine].value);
  FOREBAY_CHECK(configuration.ok());
  return *configuration;
}

std::vector<cluster::Configuration> Coordinator::Possible(uint32_t machine) const {
  std::vector<cluster::Configuration> possible = keys_[machine].asked;
  possible.push_back(At(machine));
  return possible;
}

void Coordinator::Heal() {
  faults_ = false;
  away_until_ms_ = 0;
}

void Coordinator::Set(uint32_t machine, const cluster::Configuration& next) {
  keys_[machine] = {Revision(++revision_), cluster::EncodeConfiguration(next), {}};
  ++stats_->set_changes;
  changed_(machine, next);
  for (uint32_t node = 1; node <= options_.nodes; ++node) {
    if (faults_ && dice_->Chance(options_.watch_lost)) {
      stats_->Count(Fault::kWatchLost);
      continue;
    }
    const bool late = faults_ && dice_->Chance(options_.watch_late);
    const bool again = faults_ && dice_->OneIn(10);
    const bool compacted = faults_ && dice_->OneIn(4);
    if (late) stats_->Count(Fault::kWatchLate);
    if (again) stats_->Count(Fault::kWatchRepeated);
    for (int i = 0; i < (again ? 2 : 1); ++i) {
      queue_->After(late ? dice_->Between(100, options_.late_ms_max) : dice_->Between(1, 10),
                    [this, machine, node = NodeId(node), compacted, key = keys_[machine]] {
                      const Key& now = keys_[machine];
                      if (compacted && now.revision != key.revision)
                        stats_->Count(Fault::kWatchCompacted);
                      Tell(node, machine, compacted ? now : key);
                    });
    }
  }
}

void Coordinator::Tell(NodeId node, uint32_t machine, const Key& key) {
  if (Away() || network_->IsCut(kCoordinator, node)) return stats_->Count(Fault::kWatchLost);
  const auto configuration = cluster::DecodeConfiguration(key.value);
  FOREBAY_CHECK(configuration.ok());
  news_(node, machine, key.revision, *configuration);
}

void Coordinator::Read(NodeId node, uint32_t machine) {
  if (network_->IsCut(node, kCoordinator)) return;
  queue_->After(dice_->Between(1, 10),
                [this, node, machine] { Tell(node, machine, keys_[machine]); });
}

void Coordinator::Ask(NodeId node, uint32_t machine, const replication::Swap& swap,
                      std::function<void(replication::SwapAnswer)> answer) {
  struct Waiting {
    std::function<void(replication::SwapAnswer)> answer;
    void Give(const replication::SwapAnswer& what) {
      if (answer) std::exchange(answer, nullptr)(what);
    }
  };
  auto waiting = std::make_shared<Waiting>(Waiting{std::move(answer)});
  queue_->After(kAskTimeoutMs, [this, waiting, id = swap.id] {
    if (!waiting->answer) return queue_->Idle();
    waiting->Give({id, replication::SwapOutcome::kUnknown, {}, {}});
  });
  if (keys_[machine].revision == swap.base) keys_[machine].asked.push_back(swap.next);
  network_->Deliver(node, kCoordinator, [this, node, machine, swap, waiting] {
    // Whoever goes away may have done it.
    if (Away() && dice_->OneIn(2)) return;
    const Key& key = keys_[machine];
    replication::SwapAnswer result{swap.id, replication::SwapOutcome::kRefused, key.revision, {}};
    if (key.revision == swap.base) {
      if (!waiting->answer) stats_->Count(Fault::kSwapLate);
      Set(machine, swap.next);
      result.outcome = replication::SwapOutcome::kDone;
      result.revision = key.revision;
    } else {
      result.current = At(machine);
    }
    if (Away() || (faults_ && dice_->Chance(options_.swap_answer_lost)))
      return stats_->Count(Fault::kSwapAnswerLost);
    network_->Deliver(kCoordinator, node, [waiting, result] { waiting->Give(result); });
  });
}

}  // namespace forebay::cluster_simulation
