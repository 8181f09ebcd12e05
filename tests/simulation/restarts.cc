// How a Node's machines end and start anew, and what is wrong with its disks.
#include <algorithm>
#include <utility>
#include <vector>

#include "node/check_recovered.h"
#include "tests/simulation/hosts.h"
#include "tests/simulation/payload_disk.h"

namespace forebay::simulation {

// What was being written is of no use to anybody; what is alive is named by a state.
void Node::RestartStore(bool power) {
  std::vector<PayloadId> live;
  for (uint64_t id = 1; id <= payloads_.ids(); ++id) {
    if (payloads_.Alive(PayloadId(id))) live.push_back(PayloadId(id));
  }
  store_->Restart(power ? MachineDisk::CrashKind::kPower : MachineDisk::CrashKind::kProcess, live);
}

void Node::RestartOne() { Restart(dice_->Below(shards() + 2)); }

void Node::Restart(uint64_t which) {
  stats_->Count(Fault::kRestart);
  bool damage = faults_ && options_.damage > 0 && dice_->OneIn(3);
  if (damage) DamageSome();
  const size_t damaged = payloads_.damaged().size();
  const auto kind =
      dice_->OneIn(2) ? MachineDisk::CrashKind::kPower : MachineDisk::CrashKind::kProcess;
  bool flip = faults_ && dice_->Chance(options_.flip);
  const bool all = which > shards();
  if (all && store_ != nullptr) {
    // Time passes while the machines are recovered.
    store_->End();
    const std::set<PayloadId> unwritten = store_->writing();
    for (const PayloadId payload : unwritten) FreeRefused(payload);
  }
  for (uint32_t i = 0; i < shards() && !refused_; ++i) {
    if (all || (which == i && !shards_[i]->away()))
      refused_ = !shards_[i]->Restart(kind, std::exchange(flip, false));
  }
  if (!refused_ && which >= shards()) refused_ = !ledger_->Restart(kind, flip);
  if (refused_) return stats_->Count(Fault::kRefused);
  if (all) {
    waiting_.clear();
    ending_ = false;
    CheckThatTheyFit();
    if (store_ != nullptr) RestartStore(kind == MachineDisk::CrashKind::kPower);
    damage = damage || payloads_.damaged().size() > damaged;
  }
  for (auto& shard : shards_) {
    if (!shard->away()) shard->loop->Resend();
  }
  ledger_->loop->Resend();
  if (damage) DropDamaged();
  SendSummaries();
  Arm();
}

// One shard is left in any case.
void Node::SomeLeave() {
  if (!faults_ || options_.away == 0 || !dice_->Chance(options_.away)) return;
  Leave(ShardId(static_cast<uint8_t>(dice_->Below(shards()))));
}

void Node::Leave(ShardId id) {
  const auto present = std::ranges::count_if(shards_, [](const auto& s) { return !s->away(); });
  ShardHost& host = *shards_[id.value];
  if (!faults_ || refused_ || host.away() || present == 1) return;
  const bool for_good = dice_->Chance(options_.away_for_good);
  stats_->Count(for_good ? Fault::kAwayForGood : Fault::kAway);
  host.loop = nullptr;
  refused_ = !host.Restart(
      dice_->OneIn(2) ? MachineDisk::CrashKind::kPower : MachineDisk::CrashKind::kProcess, false);
  if (options_.damage > 0 && dice_->OneIn(2)) DamageSealed(id);
  ledger_->loop->primary().SetAnswering(queue_->now_ms(), id, false);
  Arm();
  if (for_good) return;
  const uint64_t away_ms = dice_->OneIn(2)
                               ? dice_->Between(200, 9'000)  // seconds, within the bound
                               : dice_->Between(11'000, 180'000);
  queue_->After(away_ms, [this, id] { Return(id); });
}

// What a sealed plan has of the shard: it is the ledger that must find a way without it.
void Node::DamageSealed(ShardId id) {
  for (const ledger::Step* step : ledger().StepsNewestFirst()) {
    if (step->state != ledger::StepState::kSealed) continue;
    const auto of_shard = std::ranges::find_if(
        step->rollouts, [id](const auto& rollout) { return rollout.rollout.shard() == id; });
    if (of_shard != step->rollouts.end()) return payloads_.Damage(of_shard->payload);
  }
}

// Its state is as it left it; what it was told meanwhile waits in the ledger's channel.
void Node::Return(ShardId id) {
  if (refused_) return;
  ShardHost& host = *shards_[id.value];
  if (ledger().absent(id)) stats_->Count(Fault::kTakenForAbsent);
  host.StartLoop();
  ledger_->loop->primary().SetAnswering(queue_->now_ms(), id, true);
  CheckThatTheyFit();
  host.loop->Resend();
  ledger_->loop->Resend();
  DropDamaged();
  SendSummaries();
  Arm();
}

void Node::CheckThatTheyFit() const {
  std::vector<const shard::State*> states;
  for (const auto& shard : shards_) states.push_back(&shard->state());
  if (const absl::Status fit = node::CheckRecovered(ledger(), states); !fit.ok())
    alarm_(CommittedEntriesStay::kName, fit.ToString());
}

void Node::LogFailed() {
  stats_->Count(Fault::kLogFailed);
  if (std::exchange(ending_, true)) return;
  queue_->After(dice_->Below(500), [this] {
    // All may have been started anew meanwhile.
    if (ending_) Restart(shards() + 1);
  });
}

void Node::ForEachDisk(const std::function<void(MachineDisk&)>& act) {
  if (!options_.disk) return;
  for (auto& shard : shards_) act(*shard->machine.disk());
  act(*ledger_->machine.disk());
}

void Node::TroubleSomeDisk() {
  if (!faults_ || !options_.disk || !dice_->Chance(options_.disk_trouble)) return;
  uint64_t which = dice_->Below(shards() + 1);
  if (store_ != nullptr && dice_->OneIn(3)) return store_->Trouble();
  ForEachDisk([&which](MachineDisk& disk) {
    if (which-- == 0) disk.Trouble();
  });
}

void Node::LookAtLogs() {
  for (auto& shard : shards_) shard->machine.log().Look(nullptr);
  ledger_->machine.log().Look(nullptr);
}

void Node::Heal() {
  faults_ = false;
  ForEachDisk([](MachineDisk& disk) { disk.Heal(); });
  if (store_ != nullptr) store_->Heal();
}

}  // namespace forebay::simulation
