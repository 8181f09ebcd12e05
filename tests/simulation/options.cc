#include "tests/simulation/options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "tests/simulation/dice.h"

namespace forebay::simulation {
namespace {

using codec::SourceSettings;

double Maybe(Dice& dice, double most) { return dice.OneIn(2) ? most * dice.Unit() : 0; }

void DrawGroups(Dice& dice, SourceSettings* s) {
  s->group_size = static_cast<uint32_t>(dice.Between(2, 6));
  s->attempts_per_task =
      s->group_size + static_cast<uint32_t>(dice.OneIn(3) ? dice.Between(1, 3) : 0);
  s->complete_at = s->group_size;
  if (dice.OneIn(4)) s->complete_at = static_cast<uint32_t>(dice.Between(2, s->group_size));
  if (dice.OneIn(4)) {
    s->complete_deadline_ms = dice.Between(2'000, 30'000);
    s->complete_minimum = static_cast<uint32_t>(dice.Between(2, s->complete_at));
  }
  s->keep_equal_rewards = dice.OneIn(5);
  if (dice.OneIn(6)) s->filter_max_tokens = static_cast<uint32_t>(dice.Between(1'000, 3'000));
  s->advantage = static_cast<codec::AdvantageKind>(dice.Below(5));
  s->truncated = static_cast<codec::TruncatedRule>(dice.Below(3));
  s->aborted = static_cast<codec::AbortedRule>(dice.Below(2));
}

SourceSettings DrawSource(Dice& dice, size_t index, bool eval) {
  SourceSettings s;
  s.name = absl::StrCat(eval ? "eval" : "train", index);
  s.purpose = eval ? codec::Purpose::kEval : codec::Purpose::kTrain;
  DrawGroups(dice, &s);
  s.max_lag = static_cast<uint32_t>(dice.Below(4));
  s.lag_of = static_cast<codec::LagOf>(dice.Below(4));
  s.late = static_cast<codec::LateRule>(dice.Below(5));
  s.reward_timeout_ms = dice.OneIn(3) ? dice.Between(2'000, 10'000) : 0;
  if (dice.OneIn(4)) s.rewards = {{"format", 0.25}, {"reward", 1.0}};
  s.lease_min_ms = dice.Between(4'000, 10'000);
  s.lease_max_ms = s.lease_min_ms + dice.Between(0, 20'000);
  s.max_failures = static_cast<uint32_t>(dice.Between(1, 5));
  s.weight = 0.25 + dice.Unit() * 2;
  s.minimum_share = dice.OneIn(3) ? 0.1 : 0;
  s.order = static_cast<codec::Order>(dice.Below(4));
  if (s.attempts_per_task > 2 && !s.keep_equal_rewards && dice.OneIn(4))
    s.screen_attempts = static_cast<uint32_t>(dice.Between(2, s.attempts_per_task - 1));
  return s;
}

void DrawActors(Dice& dice, HistoryOptions* o) {
  o->actors = static_cast<uint32_t>(dice.OneIn(4) ? dice.Between(100, 400) : dice.Between(1, 60));
  o->slots = static_cast<uint32_t>(dice.Between(1, 8));
  // With more actors attempts take longer, so that leases expire before the history ends.
  o->attempt_ms = dice.Between(300, 1'500) * (1 + o->actors / 20);
  o->straggler = Maybe(dice, 0.1);
  o->tool_wait = Maybe(dice, 0.3);
  o->length_drift = Maybe(dice, 3);
  o->equal_rewards = dice.OneIn(8) ? 0.8 : Maybe(dice, 0.6);
  o->late_weights = Maybe(dice, 0.5);
  o->multi_sequence = dice.OneIn(2);
  if (!o->multi_sequence && dice.OneIn(2)) o->equal_tokens = 500;
  o->crash = Maybe(dice, 0.05);
  o->leave = Maybe(dice, 0.05);
  o->fail = Maybe(dice, 0.05);
  o->release = Maybe(dice, 0.05);
  o->partial = Maybe(dice, 0.2);
  o->aborted = Maybe(dice, 0.05);
  o->truncated = Maybe(dice, 0.2);
  o->late_reward = Maybe(dice, 0.8);
  o->lost_reward = Maybe(dice, 0.1);
  o->forgetful = Maybe(dice, 0.3);
  o->repeat_push = Maybe(dice, 0.1);
  o->bad_input = Maybe(dice, 0.2);
  o->push_group = Maybe(dice, 0.02);
}

void DrawTrainers(Dice& dice, HistoryOptions* o) {
  o->ranks = static_cast<uint32_t>(dice.Between(1, 4));
  o->groups_per_step = static_cast<uint32_t>(dice.Between(1, 16));
  if (dice.OneIn(6)) o->tokens_per_step = dice.Between(2'000, 40'000);
  o->mini_batches = static_cast<uint32_t>(dice.OneIn(4) ? dice.Between(2, 3) : 1);
  // A step must have rollouts for each of its mini-batches.
  if (o->tokens_per_step > 0) o->mini_batches = 1;
  o->groups_per_step =
      std::clamp(o->groups_per_step, o->mini_batches, o->mini_batches + o->actors * o->slots / 4);
  uint32_t least_lag = UINT32_MAX;
  for (const SourceSettings& source : o->sources) {
    if (source.purpose == codec::Purpose::kTrain) least_lag = std::min(least_lag, source.max_lag);
  }
  // A trainer that publishes less often than the lag limit allows starves itself.
  o->publish_every = static_cast<uint32_t>(1 + dice.Below(least_lag / o->mini_batches + 1));
  o->open_ahead = static_cast<uint32_t>(dice.Between(1, 2));
  o->custom_advantages = dice.OneIn(5);
  o->pending_first = dice.OneIn(2);
  o->step_max_lag = Maybe(dice, 0.3);
  o->put_columns = Maybe(dice, 0.5);
  o->refetch = Maybe(dice, 0.3);
  o->abort = Maybe(dice, 0.05);
  o->job_crash = Maybe(dice, 0.05);
  o->rank_crash = Maybe(dice, 0.05);
  o->zombie = Maybe(dice, 1);
  o->replan = Maybe(dice, 0.15);
  o->step_source = Maybe(dice, 0.5);
}

// Small files and snapshots, so that many of them come and go.
void DrawDisk(Dice& dice, HistoryOptions* o) {
  o->disk = true;
  o->log_file_bytes = dice.Between(20'000, 600'000);
  o->snapshot_log_bytes = dice.Between(20'000, 600'000);
  if (dice.OneIn(2)) o->log_pending_bytes_max = dice.Between(4'000, 40'000);
  o->store = dice.OneIn(2);
  if (dice.OneIn(2)) o->store_memory_bytes = dice.Between(200'000, 1'000'000);
  o->segment_bytes = dice.Between(50'000, 500'000);
  o->disk_trouble = Maybe(dice, 0.1);
  if (dice.OneIn(3)) o->flip = dice.Unit();
  if (o->restart_one_in == 0 && dice.OneIn(2)) o->restart_one_in = dice.Between(500, 5'000);
}

}  // namespace

HistoryOptions ScaleOptions(const Scale& scale) {
  constexpr uint32_t kGroupSize = 16;
  constexpr uint64_t kEventsPerRollout = 8;  // about; the whole state is looked at once a step
  HistoryOptions options;
  options.seed = scale.seed;
  options.events = UINT64_MAX;
  options.steps = scale.steps;
  options.scan_every = scale.rollouts_per_step * kEventsPerRollout;
  options.shards = scale.shards;
  codec::SourceSettings source;
  source.name = "math";
  source.group_size = source.attempts_per_task = source.complete_at = kGroupSize;
  source.max_lag = 1;
  options.sources = {source};
  options.tasks_per_source = scale.rollouts_per_step;
  options.actors = scale.actors;
  options.slots = 16;
  options.attempt_ms = 20'000;
  options.straggler = 0.005;
  options.ranks = scale.ranks;
  options.groups_per_step = scale.rollouts_per_step / kGroupSize;
  options.crash = 1e-5;
  options.fail = options.release = options.repeat_push = 1e-3;
  options.loss = options.repeat = 1e-4;
  return options;
}

HistoryOptions DrawHistory(uint64_t seed) {
  Dice dice(HashCombine(seed, 0x5eed));
  HistoryOptions o;
  o.seed = seed;
  o.shards = static_cast<uint32_t>(dice.OneIn(2) ? 1 : dice.Between(2, 4));
  const uint64_t trains = dice.Between(1, 3);
  for (uint64_t i = 0; i < trains; ++i) o.sources.push_back(DrawSource(dice, i, false));
  if (dice.OneIn(2)) o.sources.push_back(DrawSource(dice, 0, true));
  o.tasks_per_source = static_cast<uint32_t>(dice.Between(20, 400));
  DrawActors(dice, &o);
  DrawTrainers(dice, &o);
  // A step must find its groups among tasks that are not filtered for ever, while a step before it
  // holds as many; and with the dice as they fall, not on average alone.
  const double groups = o.groups_per_step + static_cast<double>(o.tokens_per_step) / 1'000;
  const auto tasks_least = static_cast<uint32_t>((14 + 3 * groups) / (1 - o.equal_rewards));
  o.tasks_per_source = std::max(o.tasks_per_source, tasks_least);
  if (!dice.OneIn(4)) {
    o.loss = Maybe(dice, 0.1);
    o.repeat = Maybe(dice, 0.1);
    o.delay_ms_max = dice.OneIn(2) ? dice.Between(1, 20) : dice.Between(20, 500);
    o.peer_faults = dice.OneIn(2);
    if (dice.OneIn(2)) o.restart_one_in = dice.Between(500, 5'000);
  }
  // An attempt takes about 10 KB here.
  if (dice.OneIn(3)) {
    // Two steps must fit, with what is ready beside them; an attempt takes about 10 bytes a token.
    const double tokens = o.tokens_per_step > 0
                              ? static_cast<double>(o.tokens_per_step)
                              : o.groups_per_step * 2'500.0 * (1 + o.length_drift);
    o.payload_bytes_max = static_cast<uint64_t>(tokens * 10 * (3 + 3 * dice.Unit())) + 100'000;
    // With memory full, what is freed for the step goes round by the mixture, a group a second: a
    // step that takes from a source of little weight would be filled, and long after it should.
    for (SourceSettings& source : o.sources) source.weight = o.step_source > 0 ? 1 : source.weight;
  }
  if (dice.OneIn(2)) o.closed_groups_max = static_cast<uint32_t>(dice.Between(4, 200));
  o.source_change = Maybe(dice, 0.2);
  o.quarantine = Maybe(dice, 0.2);
  o.eval = Maybe(dice, 0.3);
  o.add_tasks = Maybe(dice, 0.2);
  o.pauses = dice.OneIn(3);
  if (dice.OneIn(2)) {
    o.checkpoint = dice.Unit();
    o.rewind = Maybe(dice, 0.15);
    o.operator_rewind = Maybe(dice, 0.03);
    if (!dice.OneIn(4)) o.retention_bytes_max = dice.Between(10'000, 1'000'000);
  }
  if (!dice.OneIn(3)) o.sync_ms_max = dice.OneIn(4) ? dice.Between(20, 500) : dice.Between(1, 20);
  o.damage = Maybe(dice, 0.02);
  o.drop = Maybe(dice, 0.05);
  if (o.sync_ms_max > 0 && !dice.OneIn(4)) DrawDisk(dice, &o);
  if (dice.OneIn(2)) {
    o.keep = {.sample = dice.OneIn(4) ? 1 : dice.Unit() / 4,
              .flagged = dice.OneIn(2),
              .bytes_max = dice.Between(5'000, 200'000)};
  }
  // What a shard that is away holds takes no memory in the daemon, which has a store then.
  if (o.shards > 1 && o.payload_bytes_max == HistoryOptions().payload_bytes_max && !dice.OneIn(4)) {
    o.away = 0.05 * dice.Unit();
    o.away_for_good = dice.OneIn(2) ? dice.Unit() : 0;
    // One shard may be all that is left.
    o.tasks_per_source = std::max(o.tasks_per_source, tasks_least * o.shards);
  }
  return o;
}

std::string HistoryOptions::Summary() const {
  return absl::StrCat(
      shards, " shards, ", sources.size(), " sources, ", actors, " actors x ", slots, ", ", ranks,
      " ranks, ", groups_per_step, " groups or ", tokens_per_step, " tokens a step, ", mini_batches,
      " mini-batches, ", open_ahead, " open, loss ", loss, ", repeat ", repeat, ", delay ",
      delay_ms_max, " ms, peer faults ", peer_faults, ", restart 1/", restart_one_in, ", sync ",
      sync_ms_max, " ms", disk ? " on disks" : "", store ? " with payloads" : "", ", trouble ",
      disk_trouble, ", flip ", flip, ", payloads ", payload_bytes_max, ", damage ", damage,
      ", retained ", retention_bytes_max, ", kept ", keep.sample, " up to ", keep.bytes_max,
      ", rewind ", rewind, ", away ", away, ", for good ", away_for_good);
}

}  // namespace forebay::simulation
