#include "tests/simulation/simulation.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "tests/simulation/actor.h"
#include "tests/simulation/invariants/progress.h"
#include "tests/simulation/operator.h"
#include "tests/simulation/trace.h"
#include "tests/simulation/trainer.h"
#include "tests/simulation/world.h"

namespace forebay::simulation {
namespace {

constexpr double kFaultyPart = 0.8;  // of the events; then everything heals
constexpr uint64_t kMaintainMs = 1'000;
// A history must come to an end, even if time stands still.
constexpr uint64_t kStuckEvents = 4'000'000;

class Simulation final {
 public:
  Simulation(const HistoryOptions& options, uint64_t trace_from, HistoryResult* result)
      : options_(options),
        result_(*result),
        dice_(HashCombine(HashCombine(options.seed, 0xd1ce), options.timing)),
        checker_(options_, &result->stats),
        trace_(&queue_, trace_from, &result->last_events),
        facts_(this),
        node_(
            options_, &queue_, &dice_, &result->stats, &facts_,
            [this](const char* invariant, const std::string& what) {
              checker_.Fail(invariant, what);
            },
            [this](const ledger::Announcement& announcement) { Announce(announcement); }),
        network_(options_, &queue_, &dice_, &result->stats),
        world_{options_,
               queue_,
               dice_,
               result->stats,
               network_,
               node_,
               [this](const char* invariant, const std::string& what) {
                 checker_.Fail(invariant, what);
               }},
        operator_(&world_) {
    checker_.Watch(&node_);
  }

  void Run();

 private:
  void Announce(const ledger::Announcement& announcement);
  void StartJob(uint32_t ranks);
  void JobCrashed(Job* job);
  void Maintain();
  void Heal();
  void CheckProgress();
  std::string WhyWaiting() const;

  // Hands each fact to the trace and to the invariants.
  struct Both final : Observer {
    explicit Both(Simulation* s) : simulation(*s) {}
    Simulation& simulation;
    template <class F>
    void Tell(F tell) {
      tell(static_cast<Observer&>(simulation.trace_));
      tell(static_cast<Observer&>(simulation.checker_));
    }
    void OnShardCommand(ShardId shard, const shard::Command& c) override {
      Tell([&](Observer& o) { o.OnShardCommand(shard, c); });
    }
    void OnLedgerCommand(const ledger::Command& c) override {
      Tell([&](Observer& o) { o.OnLedgerCommand(c); });
    }
    void OnAssigned(SessionId session, const shard::Assignment& a) override {
      Tell([&](Observer& o) { o.OnAssigned(session, a); });
    }
    void OnPushed(SessionId session, const shard::RolloutMeta& meta,
                  const shard::PushOutcome& outcome) override {
      Tell([&](Observer& o) { o.OnPushed(session, meta, outcome); });
    }
    void OnGroupPushed(const shard::PutGroup& group,
                       const shard::PutRolloutsReply& reply) override {
      Tell([&](Observer& o) { o.OnGroupPushed(group, reply); });
    }
    void OnRewarded(const shard::LateReward& reward, shard::PushResult result) override {
      Tell([&](Observer& o) { o.OnRewarded(reward, result); });
    }
    void OnRenewed(SessionId session, const shard::LeaseRef& lease,
                   shard::LeaseAction action) override {
      Tell([&](Observer& o) { o.OnRenewed(session, lease, action); });
    }
    void OnTrainerAnswer(const ledger::Command& command, const ledger::Reply& reply) override {
      Tell([&](Observer& o) { o.OnTrainerAnswer(command, reply); });
    }
    void OnFetched(Generation generation, StepId step, Revision revision,
                   const ledger::MicroBatchRef& ref,
                   const absl::StatusOr<ledger::MicroBatchView>& view) override {
      Tell([&](Observer& o) { o.OnFetched(generation, step, revision, ref, view); });
    }
    void OnPayloadDead(PayloadId payload) override {
      Tell([&](Observer& o) { o.OnPayloadDead(payload); });
    }
    void OnPayloadLost(PayloadId payload) override {
      Tell([&](Observer& o) { o.OnPayloadLost(payload); });
    }
    void OnReserved(ShardId shard, const codec::Reserved& reserved) override {
      Tell([&](Observer& o) { o.OnReserved(shard, reserved); });
    }
    void OnStepChanged(const ledger::Step& step) override {
      Tell([&](Observer& o) { o.OnStepChanged(step); });
      if (step.state == ledger::StepState::kCommitted)
        simulation.result_.plan_hashes.push_back(step.plan_hash);
    }
    void OnStoreAccess(uint64_t process, const io::MemoryAccess& access) override {
      Tell([&](Observer& o) { o.OnStoreAccess(process, access); });
    }
    void OnPayloadStored(PayloadId payload, const std::vector<std::string>& paths) override {
      Tell([&](Observer& o) { o.OnPayloadStored(payload, paths); });
    }
  };

  const HistoryOptions options_;
  HistoryResult& result_;
  EventQueue queue_;
  Dice dice_;
  Checker checker_;
  Trace trace_;
  Both facts_;
  Node node_;
  Network network_;
  World world_;
  Operator operator_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<std::unique_ptr<Job>> jobs_;
  Progress progress_;
};

void Simulation::Announce(const ledger::Announcement& announcement) {
  // Each watcher has a stream of its own, which a client opens again when it breaks.
  for (auto& actor : actors_) {
    queue_.After(dice_.Between(1, options_.delay_ms_max),
                 [a = actor.get(), announcement] { a->Hear(announcement); });
  }
}

void Simulation::StartJob(uint32_t ranks) {
  jobs_.push_back(
      std::make_unique<Job>(&world_, jobs_.size(), ranks, [this](Job* job) { JobCrashed(job); }));
  jobs_.back()->Start();
}

void Simulation::JobCrashed(Job* job) {
  const uint32_t ranks = dice_.OneIn(3) ? static_cast<uint32_t>(dice_.Between(1, 4)) : job->ranks();
  queue_.After(dice_.Between(200, 5'000), [this, ranks] { StartJob(ranks); });
}

void Simulation::Maintain() {
  node_.Maintain();
  queue_.After(kMaintainMs, [this] { Maintain(); });
}

void Simulation::Heal() {
  world_.healed = true;
  network_.Heal();
  node_.Heal();
  operator_.Heal();
  progress_.Healed(queue_.now_ms(), result_.stats.steps);
}

std::string Simulation::WhyWaiting() const {
  const ledger::State& ledger = node_.ledger();
  std::string text = absl::StrCat("step ", ledger.next_step().value);
  if (const ledger::Step* step = ledger.step(ledger.next_step())) {
    absl::StrAppend(&text, " in state ", static_cast<int>(step->state), " with ",
                    step->groups.size(), " groups of ", step->spec.groups, ", ",
                    step->requests.size(), " requests ", step->failure);
  }
  absl::StrAppend(&text, ", published ", ledger.published().version.number, " of ",
                  ledger.committed_version().number, ", payloads ", node_.payloads().used(), " of ",
                  node_.payloads().bytes_max(), ", ", node_.waiting_pushes(), " pushes wait");
  for (uint32_t i = 0; i < node_.shards(); ++i) {
    for (const shard::SourceView& view : node_.shard(ShardId(static_cast<uint8_t>(i))).Sources()) {
      absl::StrAppend(&text, "; shard ", i, " ", view.settings->name, ": ", view.tasks, " tasks, ",
                      view.quarantined, " quarantined, ", view.groups_open, " open, ",
                      view.groups_ready, " ready, ", view.groups_reserved, " reserved, ",
                      view.in_flight, " in flight, ", view.outstanding, " outstanding of ",
                      view.outstanding_max);
    }
    for (const shard::EvalView& eval : node_.shard(ShardId(static_cast<uint8_t>(i))).Evals()) {
      if (eval.done) continue;
      absl::StrAppend(&text, "; shard ", i, " evaluates version ", eval.version.number, ", ",
                      eval.tasks_done, " of ", eval.tasks, " tasks done, ", eval.failed, " failed");
    }
  }
  return text;
}

void Simulation::CheckProgress() {
  if (progress_.Late(queue_.now_ms(), result_.stats.steps)) {
    checker_.Fail(Progress::kName,
                  absl::StrCat("not ", Progress::kSteps, " steps in ", Progress::kWithinMs / 1000,
                               " s of virtual time: ", WhyWaiting()));
  } else if (!progress_.Shown(result_.stats.steps) &&
             queue_.events() >= options_.events + kStuckEvents) {
    checker_.Fail(Progress::kName, absl::StrCat("not ", Progress::kSteps, " steps in ",
                                                queue_.events(), " events: ", WhyWaiting()));
  }
}

void Simulation::Run() {
  operator_.Start();
  for (uint32_t i = 0; i < options_.actors; ++i)
    actors_.push_back(std::make_unique<Actor>(&world_, i));
  for (auto& actor : actors_) queue_.After(dice_.Below(2'000), [a = actor.get()] { a->Start(); });
  queue_.After(dice_.Below(2'000), [this] { StartJob(options_.ranks); });
  queue_.After(kMaintainMs, [this] { Maintain(); });
  const auto heal_at = static_cast<uint64_t>(static_cast<double>(options_.events) * kFaultyPart);
  uint64_t next_scan = options_.scan_every;
  while (!checker_.violation()) {
    const uint64_t events = queue_.events();
    queue_.RunNext();
    if (!world_.healed && queue_.events() > events && dice_.OneIn(options_.restart_one_in))
      node_.RestartOne();
    if (node_.refused()) break;
    if (queue_.events() >= next_scan) {
      checker_.OnScan();
      next_scan = queue_.events() + options_.scan_every;
    }
    if (options_.steps > 0 && result_.stats.steps >= options_.steps) break;
    if (!world_.healed) {
      if (queue_.events() >= heal_at) Heal();
      continue;
    }
    CheckProgress();
    if (queue_.events() >= options_.events && progress_.Shown(result_.stats.steps)) break;
  }
  if (!checker_.violation() && !node_.refused()) checker_.OnScan();
  result_.violation = checker_.violation();
  result_.event = queue_.events();
  result_.stats.histories = 1;
  result_.stats.events = queue_.events();
  result_.stats.virtual_ms = queue_.now_ms();
}

}  // namespace

HistoryResult RunHistory(const HistoryOptions& options, uint64_t trace_from) {
  HistoryResult result;
  Simulation(options, trace_from, &result).Run();
  return result;
}

}  // namespace forebay::simulation
