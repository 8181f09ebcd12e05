#include "tests/simulation/actor.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/simulation/wrong.h"

namespace forebay::simulation {

using shard::LeaseRef;
using shard::PushResult;
using shard::RolloutMeta;

namespace {

constexpr uint32_t kWaitMs = 3'000;
constexpr uint64_t kRenewMs = 1'500;

uint8_t All(const codec::SourceSettings& settings) {
  return static_cast<uint8_t>((1u << settings.rewards.size()) - 1);
}

}  // namespace

Actor::Actor(World* world, uint32_t number) : world_(*world), number_(number) {}

void Actor::Start() {
  ++life_;
  held_.clear();
  request_ = 0;
  session_ = SessionId(world_.dice.Next() | 1);
  forgetful_ = world_.Mishap(world_.options.forgetful);
  loads_any_ = world_.dice.OneIn(3);
  load_ms_ = world_.dice.Between(10, 200);
  if (world_.Mishap(world_.options.late_weights)) {
    world_.stats.Count(Fault::kLateWeights);
    load_ms_ = world_.dice.Between(2'000, 20'000);
  }
  version_ = world_.node.ledger().published().version;
  open_ = 0;
  for (uint32_t i = 0; i < world_.node.shards(); ++i) OpenAt(i);
}

void Actor::Opened() {
  if (++open_ < world_.node.shards()) return;
  Loop();
  if (!forgetful_) RenewAll();
}

void Actor::OpenAt(uint32_t shard) {
  // One that is away is gone round. When it is back it does not know the session.
  const auto away = [this, shard] {
    return world_.node.away(ShardId(static_cast<uint8_t>(shard)));
  };
  if (away()) return Opened();
  const shard::OpenSession open{session_, absl::StrCat("actor", number_),
                                absl::StrCat("engine", number_ / 4), "", ""};
  world_.network.Call<shard::CountReply>(
      [this, shard, open](Answer<shard::CountReply> answer) {
        world_.node.AskShard<shard::CountReply>(ShardId(static_cast<uint8_t>(shard)), open,
                                                std::move(answer));
      },
      Mine([this, away](std::optional<shard::CountReply> reply) {
        if (!away() && (!reply || !reply->status.ok()))
          return Away(world_.dice.Between(100, 1'000));
        Opened();
      }));
}

void Actor::Hear(const ledger::Announcement& announcement) {
  if (announcement.phase != ledger::VersionPhase::kPublished) return;
  Later(load_ms_, [this, version = announcement.version] {
    if (version <= version_) return;
    version_ = version;
    for (auto& [attempt, held] : held_) held.runs.push_back({0, version, 0});
  });
}

void Actor::Crash() {
  world_.stats.Count(Fault::kActorCrash);
  Away(world_.dice.Between(500, 20'000));
}

// Hands back what it holds, or saves it, and comes back another day.
void Actor::Leave() {
  world_.stats.Count(Fault::kActorLeft);
  std::vector<LeaseRef> leases;
  for (const auto& [attempt, held] : held_) leases.push_back({attempt, held.assignment.token});
  for (const LeaseRef& lease : leases) {
    if (world_.dice.OneIn(2)) {
      GiveUp(lease, false);
    } else {
      RolloutMeta meta = Describe(held_[lease.attempt]);
      meta.partial = true;
      PushOne(lease, meta);
    }
  }
  Later(200, [this] { Away(world_.dice.Between(1'000, 60'000)); });
}

void Actor::Away(uint64_t for_ms) {
  ++life_;
  held_.clear();
  Later(world_.healed ? std::min<uint64_t>(for_ms, 1'000) : for_ms, [this] { Start(); });
}

void Actor::Loop() { Ask(world_.dice.Between(1, 50)); }

void Actor::Ask(uint64_t after_ms) {
  Later(after_ms, [this] {
    if (world_.healed && (forgetful_ || load_ms_ > 1'000)) return Away(100);
    if (world_.Mishap(world_.options.crash)) return Crash();
    if (world_.Mishap(world_.options.leave)) return Leave();
    if (world_.Mishap(world_.options.push_group)) PushWholeGroup();
    if (held_.size() >= world_.options.slots) return Ask(world_.options.attempt_ms / 2);
    shard::Assign assign;
    assign.session = session_;
    assign.request_id = ++request_;
    assign.max = static_cast<uint32_t>(world_.options.slots - held_.size());
    assign.version = version_;
    assign.loads_any_version = loads_any_;
    ShardId shard(static_cast<uint8_t>((number_ + request_) % world_.node.shards()));
    while (world_.node.away(shard))
      shard = ShardId(static_cast<uint8_t>((shard.value + 1) % world_.node.shards()));
    // With one shard it waits there; with several it goes round.
    const uint32_t wait_ms =
        world_.node.shards() == 1 ? kWaitMs : static_cast<uint32_t>(world_.dice.Below(200));
    world_.network.Call<shard::AssignReply>(
        [this, shard, assign, wait_ms](Answer<shard::AssignReply> answer) {
          world_.node.Acquire(shard, assign, wait_ms,
                              [answer = std::move(answer)](shard::AssignReply reply) {
                                // To a call that was given up: a later try of the same request
                                // waits now.
                                if (std::string_view(reply.reason) != "superseded")
                                  answer(std::move(reply));
                              });
        },
        Mine([this](std::optional<shard::AssignReply> reply) {
          // Nobody knows what the session was given: a new one begins, and the leases expire.
          if (!reply || !reply->status.ok()) return Away(world_.dice.Between(10, 500));
          TakeAssignments(*reply);
          Ask(reply->assignments.empty() ? world_.dice.Between(300, 3'000)
                                         : world_.dice.Between(1, 20));
        }),
        wait_ms);
  });
}

void Actor::TakeAssignments(const shard::AssignReply& reply) {
  for (const shard::Assignment& assignment : reply.assignments) Begin(assignment);
}

void Actor::Begin(const shard::Assignment& assignment) {
  if (held_.contains(assignment.attempt)) return;
  if (loads_any_ && assignment.eval_run != EvalRunId()) {
    // It samples with the pinned weights for the run.
    held_[assignment.attempt] = {assignment, {{0, assignment.version, 0}}};
  } else {
    held_[assignment.attempt] = {assignment, {{0, version_, 0}}};
  }
  uint64_t duration = world_.options.attempt_ms / 2 + world_.dice.Below(world_.options.attempt_ms);
  duration += static_cast<uint64_t>(static_cast<double>(duration) * world_.options.length_drift *
                                    world_.progress());
  if (world_.Mishap(world_.options.straggler)) {
    world_.stats.Count(Fault::kStraggler);
    duration *= 20;
  }
  if (world_.Mishap(world_.options.tool_wait)) {
    world_.stats.Count(Fault::kToolWait);
    duration += world_.dice.Between(1'000, 30'000);
  }
  if (forgetful_) world_.stats.Count(Fault::kForgotLease);
  const LeaseRef lease{assignment.attempt, assignment.token};
  Later(duration, [this, lease] { End(lease); });
}

void Actor::RenewAll() {
  Later(kRenewMs, [this] {
    RenewAll();
    if (held_.empty()) return;
    std::vector<std::vector<LeaseRef>> by_shard(world_.node.shards());
    for (const auto& [attempt, held] : held_) {
      by_shard[attempt.shard().value].push_back({attempt, held.assignment.token});
    }
    for (uint32_t i = 0; i < by_shard.size(); ++i) {
      if (by_shard[i].empty()) continue;
      world_.network.Call<shard::RenewReply>(
          [this, shard = ShardId(static_cast<uint8_t>(i)), session = session_,
           leases = by_shard[i]](Answer<shard::RenewReply> answer) {
            answer(world_.node.Renew(shard, session, leases));
          },
          Mine([this, leases = by_shard[i]](std::optional<shard::RenewReply> reply) {
            if (reply) TakeRenewals(leases, *reply);
          }),
          0, 1);
    }
  });
}

void Actor::TakeRenewals(const std::vector<LeaseRef>& leases, const shard::RenewReply& reply) {
  for (size_t i = 0; i < reply.actions.size(); ++i) {
    const auto held = held_.find(leases[i].attempt);
    if (held == held_.end() || held->second.assignment.token != leases[i].token) continue;
    // Now and then an actor finishes what nobody wants any more.
    if (reply.actions[i] == shard::LeaseAction::kAbandon && !world_.Mishap(0.1)) held_.erase(held);
  }
}

void Actor::End(LeaseRef lease) {
  const auto found = held_.find(lease.attempt);
  if (found == held_.end() || found->second.assignment.token != lease.token) return;
  const HistoryOptions& o = world_.options;
  if (world_.Mishap(o.fail)) return GiveUp(lease, true);
  if (world_.Mishap(o.release)) return GiveUp(lease, false);
  RolloutMeta meta = Describe(found->second);
  if (world_.Mishap(o.bad_input)) PushSomethingWrong(meta);
  if (world_.Mishap(o.partial)) {
    meta.partial = true;
  } else if (world_.Mishap(o.aborted)) {
    meta.status = shard::RolloutStatus::kAborted;
  } else if (world_.Mishap(o.truncated)) {
    meta.status = shard::RolloutStatus::kTruncated;
  }
  PushOne(lease, std::move(meta));
}

void Actor::GiveUp(LeaseRef lease, bool fail) {
  held_.erase(lease.attempt);
  const ShardId shard = lease.attempt.shard();
  shard::Command command = shard::Release{session_, {lease}};
  if (fail) command = shard::Fail{session_, {lease}, "the verifier broke"};
  world_.network.Call<shard::CountReply>(
      [this, shard, command](Answer<shard::CountReply> answer) {
        world_.node.AskShard<shard::CountReply>(shard, command, std::move(answer));
      },
      [](const std::optional<shard::CountReply>&) {}, 0, 2);
}

void Actor::PushOne(LeaseRef lease, RolloutMeta meta) {
  meta.lease = lease;
  world_.network.Call<shard::PutRolloutsReply>(
      [this, session = session_, meta](Answer<shard::PutRolloutsReply> answer) {
        world_.node.Push(session, {meta}, std::move(answer));
      },
      Mine([this, meta](std::optional<shard::PutRolloutsReply> reply) {
        if (!reply) {
          held_.erase(meta.lease.attempt);
          return;
        }
        TakeOutcome(meta, reply->outcomes[0]);
      }),
      world_.options.payload_bytes_max < (uint64_t{1} << 30) ? 5'000 : 0, 10);
}

void Actor::TakeOutcome(const RolloutMeta& meta, const shard::PushOutcome& outcome) {
  const auto found = held_.find(meta.lease.attempt);
  const bool repeated = found == held_.end() || found->second.repeated;
  if (outcome.result == PushResult::kUnknown && std::string_view(outcome.field) == "session")
    return Away(100);
  if (outcome.result == PushResult::kAccepted && !repeated &&
      world_.Mishap(world_.options.repeat_push)) {
    // The acknowledgement is overlooked.
    found->second.repeated = true;
    return PushOne(meta.lease, meta);
  }
  const bool taken =
      outcome.result == PushResult::kAccepted || outcome.result == PushResult::kDuplicate;
  if (taken && !meta.partial && found != held_.end()) {
    const codec::SourceSettings* settings = SettingsOf(found->second.assignment.task);
    if (settings != nullptr && meta.rewards_present != All(*settings)) SendReward(meta);
  }
  if (found != held_.end()) held_.erase(found);
}

void Actor::SendReward(const RolloutMeta& meta) {
  if (world_.Mishap(world_.options.lost_reward)) return world_.stats.Count(Fault::kLostReward);
  const auto found = held_.find(meta.lease.attempt);
  const codec::SourceSettings& settings = *SettingsOf(found->second.assignment.task);
  shard::SetRewards rewards;
  rewards.rewards.push_back({meta.lease.attempt,
                             static_cast<uint8_t>(All(settings) & ~meta.rewards_present),
                             RewardOf(found->second.assignment, world_.dice)});
  if (world_.Mishap(world_.options.bad_input)) {
    world_.stats.Count(Fault::kBadInput);
    rewards.rewards.push_back(WrongReward(world_, rewards.rewards[0]));
  }
  const uint64_t after = world_.dice.Below(world_.healed ? 100 : settings.reward_timeout_ms + 500);
  world_.queue.After(after, [this, rewards] {
    world_.network.Call<shard::SetRewardsReply>(
        [this, rewards](Answer<shard::SetRewardsReply> answer) {
          world_.node.SetRewards(rewards.rewards[0].attempt.shard(), rewards, std::move(answer));
        },
        [](const std::optional<shard::SetRewardsReply>&) {});
  });
}

void Actor::PushSomethingWrong(const RolloutMeta& meta) {
  world_.stats.Count(Fault::kBadInput);
  world_.network.Call<shard::PutRolloutsReply>(
      [this, session = session_, meta](Answer<shard::PutRolloutsReply> answer) {
        PushWrong(world_, session, meta, std::move(answer));
      },
      [](const std::optional<shard::PutRolloutsReply>&) {}, 0, 1);
}

const codec::SourceSettings* Actor::SettingsOf(TaskId task) const {
  const ledger::Source* source = world_.node.ledger().source(task.source());
  return source == nullptr ? nullptr : &source->settings;
}

// Shards count their tasks each from 0: without the shard all would have the same few.
double Actor::RewardOf(const shard::Assignment& assignment, Dice& dice) {
  const uint64_t task = HashCombine(assignment.group.shard().value, assignment.task.value);
  const uint64_t mixed = Mix64(task * 31 + world_.options.seed);
  const bool equal = static_cast<double>(mixed % 1000) < world_.options.equal_rewards * 1000;
  if (equal) return static_cast<double>(mixed >> 32 & 1);
  return dice.OneIn(2) ? 1 : 0.25 * static_cast<double>(dice.Below(4));
}

RolloutMeta Actor::Describe(const Held& held) {
  RolloutMeta meta;
  const codec::SourceSettings* settings = SettingsOf(held.assignment.task);
  const uint8_t all = settings == nullptr ? 1 : All(*settings);
  meta.lease = {held.assignment.attempt, held.assignment.token};
  meta.duration_ms = world_.options.attempt_ms;
  meta.rewards_present = all;
  Dice own(held.assignment.seed);
  Dice& dice = world_.options.deterministic_policy ? own : world_.dice;
  meta.reward = RewardOf(held.assignment, dice);
  if (settings != nullptr && settings->reward_timeout_ms > 0 &&
      world_.Mishap(world_.options.late_reward)) {
    meta.rewards_present = all > 1 && world_.dice.OneIn(2) ? 1 : 0;
    if (meta.rewards_present == 0) meta.reward = 0;
  }
  DescribeSequence(held, dice, &meta.first);
  if (world_.options.multi_sequence && dice.OneIn(6)) {
    for (uint64_t i = dice.Between(1, 3); i > 0; --i)
      DescribeSequence(held, dice, &meta.more.emplace_back());
  }
  uint64_t tokens = meta.first.tokens;
  for (const shard::SequenceMeta& sequence : meta.more) tokens += sequence.tokens;
  meta.payload_bytes = tokens * 10;
  return meta;
}

void Actor::DescribeSequence(const Held& held, Dice& dice, shard::SequenceMeta* sequence) {
  const uint64_t base = 50 + Mix64(held.assignment.task.value) % 900;
  const double drift = 1 + world_.options.length_drift * world_.progress();
  const double length = static_cast<double>(base) * drift * (0.5 + dice.Unit());
  sequence->tokens = static_cast<uint32_t>(length) + 4;
  if (world_.options.equal_tokens > 0) sequence->tokens = world_.options.equal_tokens;
  sequence->prompt_tokens = static_cast<uint32_t>(dice.Below(sequence->tokens / 2));
  sequence->loss_tokens = sequence->tokens - sequence->prompt_tokens;
  if (dice.OneIn(20)) sequence->advantage = static_cast<float>(dice.Unit() - 0.5);
  const bool eval = held.assignment.eval_run != EvalRunId();
  const bool plain = held.runs.size() == 1 && held.runs[0].version == held.assignment.version;
  if (eval || (plain && dice.OneIn(2))) return;  // the assignment's version
  // Versions that were loaded on the way, each for at least one token.
  const uint32_t count =
      std::min<uint32_t>(static_cast<uint32_t>(held.runs.size()), sequence->tokens);
  uint32_t loss_left = sequence->loss_tokens;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t offset = static_cast<uint32_t>(uint64_t{sequence->tokens} * i / count);
    const uint32_t loss =
        i + 1 == count ? loss_left : static_cast<uint32_t>(dice.Below(loss_left + 1));
    loss_left -= loss;
    sequence->versions.push_back({offset, held.runs[held.runs.size() - count + i].version, loss});
  }
}

void Actor::PushWholeGroup() {
  const auto& sources = world_.node.ledger().sources();
  if (sources.empty()) return;
  const ledger::Source& source = sources[world_.dice.Below(sources.size())];
  shard::PutGroup group;
  group.request_id = world_.dice.Next() | 1;
  group.source = source.id;
  const uint64_t index = world_.dice.Below(world_.options.tasks_per_source * 2);
  group.task.external_hash = world_.TaskHash(source.id, index);
  group.task.content_hash = group.task.external_hash + 1;
  Held held;
  held.assignment.task = TaskId::Make(source.id, static_cast<uint32_t>(index));
  held.runs = {{0, version_, 0}};
  for (uint64_t i = world_.dice.Between(1, 6); i > 0; --i) {
    RolloutMeta& meta = group.rollouts.emplace_back(Describe(held));
    meta.lease = {};
    meta.rewards_present = All(source.settings);
    if (world_.dice.OneIn(10)) meta.status = shard::RolloutStatus::kTruncated;
  }
  const ShardId shard = world_.node.ShardOf(group.task.external_hash);
  world_.network.Call<shard::PutRolloutsReply>(
      [this, shard, group](Answer<shard::PutRolloutsReply> answer) {
        world_.node.PushGroup(shard, group, std::move(answer));
      },
      [](const std::optional<shard::PutRolloutsReply>&) {}, 0, 3);
}

}  // namespace forebay::simulation
