#include "tests/simulation/operator.h"

#include <algorithm>

#include "tests/simulation/trainer.h"
#include "tests/simulation/wrong.h"

namespace forebay::simulation {
namespace {

// A run over more would keep few actors from training for long.
constexpr uint32_t kEvalTasks = 20;

}  // namespace

void Operator::Start() {
  tasks_ = world_.options.tasks_per_source;
  for (const codec::SourceSettings& settings : world_.options.sources) PutSource(settings, true);
  world_.queue.After(1'000, [this] { Round(); });
}

void Operator::Heal() { PutBack(); }

// A change that was on its way when everything healed may still arrive after this: looked at
// again in every round. So may a failure that quarantines a task.
void Operator::PutBack() {
  for (uint32_t i = 0; i < world_.node.shards(); ++i) {
    for (const auto& source : world_.node.shard(ShardId(static_cast<uint8_t>(i))).Sources()) {
      if (source.quarantined > 0) Requeue(source.source);
    }
  }
  for (codec::SourceSettings settings : world_.options.sources) {
    settings.filter_max_tokens = 0;  // what grew too long would be filtered for ever
    const auto& sources = world_.node.ledger().sources();
    const bool is_so = std::any_of(sources.begin(), sources.end(),
                                   [&](const auto& source) { return source.settings == settings; });
    if (!is_so) PutSource(settings, false);
  }
}

void Operator::PutSource(const codec::SourceSettings& settings, bool with_tasks) {
  world_.network.Call<ledger::PutSourceReply>(
      [this, settings](Answer<ledger::PutSourceReply> answer) {
        world_.node.AskLedger<ledger::PutSourceReply>(ledger::PutSource{settings},
                                                      std::move(answer));
      },
      [this, settings, with_tasks](std::optional<ledger::PutSourceReply> reply) {
        if (!reply || !reply->status.ok()) return PutSource(settings, with_tasks);
        const bool eval = settings.purpose == codec::Purpose::kEval;
        if (with_tasks) AddTasks(reply->source, 0, eval ? std::min(tasks_, kEvalTasks) : tasks_);
      });
}

void Operator::AddTasks(SourceId source, uint32_t first, uint32_t count) {
  std::vector<shard::AddTasks> by_shard(world_.node.shards());
  for (uint32_t i = first; i < first + count; ++i) {
    const uint64_t hash = world_.TaskHash(source, i);
    const float weight = 0.25f + static_cast<float>(hash % 16) / 4;
    by_shard[world_.node.ShardOf(hash).value].tasks.push_back(
        {hash, hash + 1, PayloadId(), weight});
  }
  for (uint32_t i = 0; i < by_shard.size(); ++i) {
    by_shard[i].source = source;
    if (!by_shard[i].tasks.empty())
      AddTasksAt(ShardId(static_cast<uint8_t>(i)), std::move(by_shard[i]));
  }
}

void Operator::AddTasksAt(ShardId shard, shard::AddTasks tasks) {
  world_.network.Call<shard::AddTasksReply>(
      [this, shard, tasks](Answer<shard::AddTasksReply> answer) {
        world_.node.AddTasks(shard, tasks, std::move(answer));
      },
      [this, shard, tasks](std::optional<shard::AddTasksReply> reply) {
        if (reply && reply->status.ok()) return;
        // The shard has not heard of the source yet.
        world_.queue.After(100, [this, shard, tasks] { AddTasksAt(shard, tasks); });
      });
}

void Operator::Round() {
  const HistoryOptions& o = world_.options;
  if (world_.healed) PutBack();
  if (world_.Mishap(o.source_change)) ChangeSource();
  if (world_.Mishap(o.quarantine)) Quarantine();
  if (world_.Mishap(o.eval)) StartEval();
  if (world_.Mishap(o.drop)) Drop();
  if (world_.Mishap(o.add_tasks) && !world_.node.ledger().sources().empty()) {
    const auto& sources = world_.node.ledger().sources();
    // Some are known already.
    AddTasks(sources[world_.dice.Below(sources.size())].id, tasks_ - std::min(tasks_, 5u), 20);
  }
  if (world_.Mishap(o.bad_input)) {
    if (world_.dice.OneIn(2)) {
      AskWrongLedger(world_);
    } else {
      AddWrongTasks(world_);
    }
  }
  if (world_.Mishap(o.operator_rewind)) GoBack();
  WatchEvals();
  world_.queue.After(1'000, [this] { Round(); });
}

void Operator::ChangeSource() {
  world_.stats.Count(Fault::kSourceChange);
  codec::SourceSettings settings =
      world_.options.sources[world_.dice.Below(world_.options.sources.size())];
  switch (world_.dice.Below(6)) {
    case 0:
      settings.weight = world_.dice.Unit() * 3;
      break;
    case 1:
      settings.paused = world_.options.pauses;
      break;
    case 2:
      settings.max_lag = static_cast<uint32_t>(world_.dice.Below(4));
      settings.late = static_cast<codec::LateRule>(world_.dice.Below(5));
      break;
    case 3:
      settings.group_size = settings.attempts_per_task = settings.complete_at =
          static_cast<uint32_t>(world_.dice.Between(2, 6));
      settings.complete_minimum = 2;
      break;
    case 4:
      settings.lag_of = static_cast<codec::LagOf>(world_.dice.Below(4));
      settings.advantage = static_cast<codec::AdvantageKind>(world_.dice.Below(5));
      break;
    default:
      settings.truncated = static_cast<codec::TruncatedRule>(world_.dice.Below(3));
      settings.keep_equal_rewards = !settings.keep_equal_rewards;
      break;
  }
  PutSource(settings, false);
}

void Operator::Quarantine() {
  world_.stats.Count(Fault::kQuarantine);
  const auto& sources = world_.node.ledger().sources();
  if (sources.empty()) return;
  const SourceId source = sources[world_.dice.Below(sources.size())].id;
  if (world_.dice.OneIn(3)) return Requeue(source);
  for (uint64_t i = world_.dice.Between(1, 10); i > 0; --i) {
    const uint64_t hash = world_.TaskHash(source, world_.dice.Below(tasks_));
    const ShardId shard = world_.node.ShardOf(hash);
    world_.node.AskShard<shard::CountReply>(
        shard, shard::SetQuarantine{source, true, {hash}, false}, [](const shard::CountReply&) {});
  }
}

// All that is ready, or some that may be reserved, of an evaluation or gone when the shard looks.
void Operator::Drop() {
  const auto& sources = world_.node.ledger().sources();
  if (sources.empty()) return;
  world_.stats.Count(Fault::kOperatorDrop);
  const ShardId shard(static_cast<uint8_t>(world_.dice.Below(world_.node.shards())));
  shard::DropByOperator drop{.source = sources[world_.dice.Below(sources.size())].id};
  drop.ready = world_.dice.OneIn(3);
  uint64_t cursor = 0;
  for (const shard::RolloutView& view : world_.node.shard(shard).Rollouts(&cursor, 10'000)) {
    if (!drop.ready && world_.dice.OneIn(20)) drop.rollouts.push_back(view.rollout);
  }
  cursor = 0;
  for (const shard::RolloutView& view : world_.node.shard(shard).Kept(&cursor, 1'000)) {
    if (!drop.ready && world_.dice.OneIn(20)) drop.rollouts.push_back(view.rollout);
  }
  world_.node.AskShard<shard::CountReply>(shard, drop, [](const shard::CountReply&) {});
}

void Operator::GoBack() {
  const StepId last(world_.node.ledger().next_step().value - 1);
  world_.network.Call<ledger::RewindReply>(
      [this,
       rewind = RandomRewind(world_, last, Generation())](Answer<ledger::RewindReply> answer) {
        world_.node.AskLedger<ledger::RewindReply>(rewind, std::move(answer));
      },
      [](const std::optional<ledger::RewindReply>&) {});
}

void Operator::Requeue(SourceId source) {
  for (uint32_t i = 0; i < world_.node.shards(); ++i) {
    const ShardId shard(static_cast<uint8_t>(i));
    world_.node.AskShard<shard::CountReply>(shard, shard::SetQuarantine{source, false, {}, true},
                                            [](const shard::CountReply&) {});
  }
}

void Operator::StartEval() {
  for (const ledger::Source& source : world_.node.ledger().sources()) {
    if (source.settings.purpose != codec::Purpose::kEval || running_.size() >= 3) continue;
    shard::StartEval start;
    start.run = EvalRunId(world_.dice.Next() | 1);
    start.source = source.id;
    start.version = world_.node.ledger().published().version;
    start.attempts = static_cast<uint32_t>(world_.dice.Between(1, 4));
    start.share = 0.1 + 0.4 * world_.dice.Unit();
    running_[start.run] = world_.queue.now_ms();
    for (uint32_t i = 0; i < world_.node.shards(); ++i) {
      world_.node.AskShard<shard::CountReply>(ShardId(static_cast<uint8_t>(i)), start,
                                              [](const shard::CountReply&) {});
    }
  }
}

void Operator::WatchEvals() {
  for (auto run = running_.begin(); run != running_.end();) {
    // It may be on its way yet.
    const bool forgotten = world_.queue.now_ms() > run->second + 5'000;
    bool done = true;
    for (uint32_t i = 0; i < world_.node.shards(); ++i) {
      const auto view = world_.node.shard(ShardId(static_cast<uint8_t>(i))).Eval(run->first);
      done = done && (view ? view->done : forgotten);
    }
    world_.stats.evals += done;
    run = done ? running_.erase(run) : std::next(run);
  }
}

}  // namespace forebay::simulation
