#include "tests/simulation/wrong.h"

#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "curriculum/curriculum.h"

namespace forebay::simulation {
namespace {

using shard::PushResult;
using shard::RolloutMeta;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Hashes cost; some requests are enough to tell.
bool Looks(World& world) { return world.dice.OneIn(4); }

bool Mutated(const World& world) {
  const Mutations& m = world.options.mutations;
  return m.accept_old_tokens || m.accept_duplicates || m.ignore_lag || m.ignore_generations ||
         m.replan_in_place || m.keep_damaged || m.release_alone;
}

// What is wrong with it now; "" if this kind cannot be had of this rollout.
const char* Spoil(World& world, uint64_t kind, const codec::SourceSettings* settings,
                  SessionId* session, RolloutMeta* meta) {
  const codec::VersionState& versions = world.node.shard(ShardId(0)).versions();
  shard::SequenceMeta& first = meta->first;
  switch (kind) {
    case 0:
      meta->reward = kNan;
      return "a reward that is no number";
    case 1:
      if (settings == nullptr || settings->reward_timeout_ms != 0) return "";
      meta->rewards_present = 0;
      return "a missing reward";
    case 2:
      meta->rewards_present = 0x80;
      return "a reward that the source does not have";
    case 3:
      first = {};
      return "no tokens";
    case 4:
      first.prompt_tokens = first.tokens + 1;
      return "a prompt that is longer than the sequence";
    case 5:
      first.loss_tokens = first.tokens + 1;
      first.versions.clear();
      return "more loss tokens than tokens";
    case 6:
      first.versions = {{0, {versions.branch, versions.announced.number + 100}, first.loss_tokens}};
      return "a version from the future";
    case 7:
      first.versions = {{0, {versions.branch + 100, 0}, first.loss_tokens}};
      return "a version of a branch that never was";
    case 8:
      first.versions = {{1, {versions.branch, 0}, first.loss_tokens}};
      return "version runs that do not begin at 0";
    case 9:
      first.versions = {{0, {versions.branch, 0}, first.loss_tokens + 1}};
      return "version runs that disagree with the loss tokens";
    case 10:
      meta->lease.token += 1000;
      return "a token that was never given";
    case 11:
      meta->lease.token = 0;
      return "no token";
    case 12:
      meta->lease.attempt = AttemptId(meta->lease.attempt.value | 0xfffffff0u);
      return "an attempt that never was";
    case 13:
      *session = SessionId(session->value ^ 0x8000000000000000u);
      return "a session that never was";
    case 14:
      meta->status = static_cast<shard::RolloutStatus>(7);
      return "an unknown status";
    case 15:
      first.advantage = static_cast<float>(kNan);
      return "an advantage that is no number";
    case 16:
      first.versions = {{0, {versions.branch, 0}, 0},
                        {first.tokens, {versions.branch, 0}, first.loss_tokens}};
      return "a version run behind the last token";
    default:
      meta->more.emplace_back();
      return "an empty second sequence";
  }
}

void Refused(World& world, const char* what, const absl::Status& status, uint64_t before,
             uint64_t after) {
  if (Mutated(world)) return;
  if (status.ok()) world.alarm(kBadInput, absl::StrCat(what, " is taken"));
  if (before != after) world.alarm(kBadInput, absl::StrCat(what, " changes the state"));
}

std::pair<const char*, ledger::Command> WrongSource(World& world) {
  codec::SourceSettings s = world.options.sources[0];
  switch (world.dice.Below(7)) {
    case 0:
      s.weight = -1;
      return {"a negative weight", ledger::PutSource{s}};
    case 1:
      s.weight = kNan;
      return {"a weight that is no number", ledger::PutSource{s}};
    case 2:
      s.name = "";
      return {"a source without a name", ledger::PutSource{s}};
    case 3:
      s.group_size = 0;
      return {"a group of none", ledger::PutSource{s}};
    case 4:
      s.complete_at = s.attempts_per_task + 1;
      return {"a group that can never be complete", ledger::PutSource{s}};
    case 5:
      s.minimum_share = 1.5;
      return {"a minimum share above 1", ledger::PutSource{s}};
    default:
      s.rewards = {{"reward", kNan}};
      return {"a reward's weight that is no number", ledger::PutSource{s}};
  }
}

ledger::StepSpec AnySpec(const ledger::State& state) {
  ledger::StepSpec spec;
  spec.groups = 4;
  spec.token_budget = 8192;
  spec.mesh = state.mesh();
  return spec;
}

std::pair<const char*, ledger::Command> WrongStep(World& world) {
  const ledger::State& state = world.node.ledger();
  const Generation generation = state.generation();
  const StepId next = state.next_step();
  const ledger::Step* step = state.step(next);
  const bool live = step != nullptr && step->live();
  ledger::StepSpec spec = AnySpec(state);
  switch (world.dice.Below(9)) {
    case 0:
      return {"a commit out of order",
              ledger::CommitStep{generation, StepId(next.value + 1), Revision(1)}};
    case 1:
      if (live && step->state == ledger::StepState::kSealed) break;
      return {"a commit of a step that is not sealed",
              ledger::CommitStep{generation, next, Revision(1)}};
    case 2:
      return {"a step too far ahead", ledger::OpenStep{generation, StepId(next.value + 2), spec}};
    case 3:
      if (!live) break;
      spec = step->spec;
      spec.groups += 1;
      spec.tokens = 0;
      return {"another spec for an open step", ledger::OpenStep{generation, next, spec}};
    case 4:
      spec.sources = {SourceId(999)};
      return {"an unknown source in a step", ledger::OpenStep{generation, next, spec}};
    case 5:
      spec.token_budget = 0;
      return {"no token budget", ledger::OpenStep{generation, next, spec}};
    case 6:
      spec.mesh.dp += 1;
      return {"a mesh that did not attach", ledger::OpenStep{generation, next, spec}};
    case 7:
      return {"columns of a micro-batch that is not there",
              ledger::PutColumns{
                  generation, next, Revision(1), {0, 0, 1'000'000}, {{"values", 11, {}, {}, 0}}}};
    default:
      break;
  }
  return {"a commit under no generation", ledger::CommitStep{Generation(), next, Revision(1)}};
}

std::pair<const char*, ledger::Command> WrongVersion(World& world) {
  const ledger::State& state = world.node.ledger();
  const PolicyVersion future{state.branch(), state.committed_version().number + 1};
  const PolicyVersion other{state.branch() + 1, 0};
  ledger::Announcement announcement;
  announcement.where = "nowhere";
  switch (world.dice.Below(4)) {
    case 0:
      announcement.version = future;
      return {"a version from the future",
              ledger::PublishVersion{state.generation(), announcement}};
    case 1:
      announcement.version = other;
      return {"a version of another branch",
              ledger::PublishVersion{state.generation(), announcement}};
    case 2:
      return {"the adoption of a version from the future",
              ledger::ReportAdoption{"engine", future, 0, 0}};
    default:
      return {"a trainer without a process", ledger::AttachTrainer{"t", 0, {}, 0, 0, {}}};
  }
}

}  // namespace

void PushWrong(World& world, SessionId session, RolloutMeta meta,
               Answer<shard::PutRolloutsReply> answer) {
  const ShardId id = meta.lease.attempt.shard();
  const shard::State& shard = world.node.shard(id);
  const std::optional<TaskId> task = shard.TaskOf(meta.lease.attempt);
  const codec::SourceSettings* settings =
      task ? &shard.curriculum().source(task->source())->settings() : nullptr;
  const char* what = "";
  while (what[0] == '\0') what = Spoil(world, world.dice.Below(18), settings, &session, &meta);
  // With others waiting or logged before it, what they do meanwhile changes the state too.
  const bool quiet = world.node.waiting_pushes() == 0 && world.node.waiters(id) == 0 &&
                     world.node.uncommitted(id) == 0;
  const bool looks = quiet && Looks(world);
  const uint64_t before = looks ? shard.Hash() : 0;
  const uint64_t position = world.node.position(id).value;
  world.node.Push(
      session, {meta},
      [&world, what, id, looks, before, position,
       answer = std::move(answer)](shard::PutRolloutsReply reply) {
        const PushResult result = reply.outcomes[0].result;
        if (result == PushResult::kAccepted && !Mutated(world))
          world.alarm(kBadInput, absl::StrCat(what, " is accepted"));
        answer(std::move(reply));
        // A push that comes late, or for an abandoned branch, is counted.
        const bool alone = world.node.position(id).value <= position + 1;
        if (!looks || !alone || result == PushResult::kLate || result == PushResult::kStale) return;
        if (before != world.node.shard(id).Hash() && !Mutated(world))
          world.alarm(kBadInput, absl::StrCat(what, " changes the state"));
      });
}

shard::LateReward WrongReward(World& world, shard::LateReward reward) {
  switch (world.dice.Below(3)) {
    case 0:
      reward.reward = kNan;
      break;
    case 1:
      reward.rewards_present = 0x80;
      break;
    default:
      reward.attempt = AttemptId(reward.attempt.value | 0xfffffff0u);
      break;
  }
  return reward;
}

void AskWrongLedger(World& world) {
  world.stats.Count(Fault::kBadInput);
  const uint64_t kind = world.dice.Below(4);
  auto [what, command] = kind == 0   ? WrongSource(world)
                         : kind == 1 ? WrongVersion(world)
                                     : WrongStep(world);
  // What is logged before it may make it right.
  if (world.node.uncommitted_of_ledger() > 0) return;
  const uint64_t before = world.node.ledger().Hash();
  const auto take = [&world, what = what, before](const auto& reply) {
    Refused(world, what, reply.status, before, world.node.ledger().Hash());
  };
  if (std::holds_alternative<ledger::PutSource>(command)) {
    world.node.AskLedger<ledger::PutSourceReply>(command, take);
  } else if (std::holds_alternative<ledger::AttachTrainer>(command)) {
    world.node.AskLedger<ledger::AttachReply>(command, take);
  } else if (std::holds_alternative<ledger::CommitStep>(command)) {
    world.node.AskLedger<ledger::CommitReply>(command, take);
  } else {
    world.node.AskLedger<ledger::StatusReply>(command, take);
  }
}

void AddWrongTasks(World& world) {
  const auto& sources = world.node.ledger().sources();
  if (sources.empty()) return;
  const SourceId source = sources[world.dice.Below(sources.size())].id;
  const uint64_t hash = world.TaskHash(source, world.dice.Below(world.options.tasks_per_source));
  const ShardId shard = world.node.ShardOf(hash);
  const auto* known = world.node.shard(shard).curriculum().source(source);
  shard::NewTask task{hash, hash + 1, {}, 1};
  const char* what = "";
  switch (world.dice.Below(3)) {
    case 0:
      if (known == nullptr || !known->tasks().Find(hash)) return;
      task.content_hash = hash + 2;
      what = "a task of the same id with other content";
      break;
    case 1:
      task.external_hash = Mix64(hash);
      task.weight = -1;
      what = "a negative weight of a task";
      break;
    default:
      task.external_hash = Mix64(hash);
      task.weight = static_cast<float>(kNan);
      what = "a task's weight that is no number";
      break;
  }
  world.stats.Count(Fault::kBadInput);
  if (world.node.waiters(shard) > 0 || world.node.uncommitted(shard) > 0) return;
  const uint64_t before = world.node.shard(shard).Hash();
  world.node.AddTasks(shard, {source, {task}},
                      [&world, what, shard, before](const shard::AddTasksReply& reply) {
                        Refused(world, what, reply.status, before, world.node.shard(shard).Hash());
                      });
}

}  // namespace forebay::simulation
