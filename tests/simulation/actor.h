// An actor process: asks for assignments, runs attempts in virtual time, renews their leases, and
// pushes what came of them, with all that goes wrong on the way.
//
// Not thread-safe. It outlives the events that it asked for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tests/simulation/world.h"

namespace forebay::simulation {

class Actor {
 public:
  Actor(World* world, uint32_t number);

  void Start();
  // A version was announced; the engine loads it after a while.
  void Hear(const ledger::Announcement& announcement);

 private:
  struct Held {
    shard::Assignment assignment;
    std::vector<rollout::VersionRun>
        runs;  // of versions that the engine held meanwhile; offsets are not set yet
    bool repeated = false;
  };

  void OpenAt(uint32_t shard);
  void Opened();
  void Crash();
  void Leave();
  void Away(uint64_t for_ms);
  void Loop();
  void Ask(uint64_t after_ms);
  void TakeAssignments(const shard::AssignReply& reply);
  void Begin(const shard::Assignment& assignment);
  void RenewAll();
  void TakeRenewals(const std::vector<shard::LeaseRef>& leases, const shard::RenewReply& reply);
  void End(shard::LeaseRef lease);
  void GiveUp(shard::LeaseRef lease, bool fail);
  void PushOne(shard::LeaseRef lease, shard::RolloutMeta meta);
  void TakeOutcome(const shard::RolloutMeta& meta, const shard::PushOutcome& outcome);
  void SendReward(const shard::RolloutMeta& meta);
  void PushSomethingWrong(const shard::RolloutMeta& meta);
  void PushWholeGroup();
  shard::RolloutMeta Describe(const Held& held);
  void DescribeSequence(const Held& held, Dice& dice, shard::SequenceMeta* sequence);
  double RewardOf(const shard::Assignment& assignment, Dice& dice);
  const codec::SourceSettings* SettingsOf(TaskId task) const;
  // Runs `work` later, unless the process is another by then.
  template <class F>
  void Later(uint64_t after_ms, F work) {
    world_.queue.After(after_ms, [this, life = life_, work = std::move(work)] {
      if (life == life_) {
        work();
      } else {
        world_.queue.Idle();
      }
    });
  }
  // For a callback of the network: it is of no use to the next process.
  template <class F>
  auto Mine(F work) {
    return [this, life = life_, work = std::move(work)](auto... arguments) {
      if (life == life_) work(std::move(arguments)...);
    };
  }

  World& world_;
  const uint32_t number_;
  uint64_t life_ = 0;
  SessionId session_;
  uint64_t request_ = 0;
  uint32_t open_ = 0;  // shards where the session is open
  bool forgetful_ = false;
  bool loads_any_ = false;
  uint64_t load_ms_ = 0;
  PolicyVersion version_;
  std::map<AttemptId, Held> held_;
};

}  // namespace forebay::simulation
