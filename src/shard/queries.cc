// What lists of tasks and the relief of payload memory ask of a shard.
#include "absl/container/flat_hash_set.h"
#include "shard/machine.h"

namespace forebay::shard {

std::vector<TaskView> State::Tasks(SourceId source, uint64_t* cursor, size_t limit) const {
  std::vector<TaskView> views;
  const curriculum::Source* found = machine_->curriculum().source(source);
  if (found == nullptr) {
    *cursor = UINT64_MAX;
    return views;
  }
  const auto& tasks = found->tasks();
  for (; *cursor < tasks.size() && views.size() < limit; ++*cursor) {
    const auto index = static_cast<uint32_t>(*cursor);
    const curriculum::TaskRecord& record = tasks[index];
    views.push_back({.task = TaskId::Make(source, index),
                     .content = record.content,
                     .rollouts = record.rollouts,
                     .groups = record.groups,
                     .pass_a = 1.0 + record.pass_a,
                     .pass_b = 1.0 + record.pass_b,
                     .failures = record.failures,
                     .quarantined = record.quarantined != 0,
                     .weight = record.weight,
                     .mean_tokens = record.mean_tokens,
                     .last_version = record.last_version});
  }
  if (*cursor >= tasks.size()) *cursor = UINT64_MAX;
  return views;
}

bool State::KnowsTask(SourceId source, uint64_t external_hash) const {
  return machine_->curriculum().Find(source, external_hash).has_value();
}

PayloadId State::ContentOf(TaskId task) const {
  const curriculum::TaskRecord* record = machine_->curriculum().task(task);
  return record == nullptr ? PayloadId() : record->content;
}

void State::ForEachPayload(absl::FunctionRef<void(PayloadId)> payload,
                           absl::FunctionRef<void(PayloadId)> content) const {
  const auto& tables = machine_->tables();
  for (uint32_t slot = 0; slot < tables.rollouts().size(); ++slot) {
    if (!tables.rollouts().InUse(slot)) continue;
    if (const PayloadId id = tables.rollout(slot).payload; id != PayloadId()) payload(id);
  }
  for (uint32_t slot = 0; slot < tables.attempts().size(); ++slot) {
    if (!tables.attempts().InUse(slot)) continue;
    if (const PayloadId id = tables.attempt(slot).partial; id != PayloadId()) payload(id);
  }
  const auto& kept = machine_->kept().table();
  for (uint32_t slot = 0; slot < kept.size(); ++slot) {
    if (kept.InUse(slot)) payload(kept[slot].payload);
  }
  for (const auto& source : machine_->curriculum().sources()) {
    const auto& tasks = source->tasks();
    for (uint32_t i = 0; i < tasks.size(); ++i) {
      if (const PayloadId id = tasks[i].content; id != PayloadId()) content(id);
    }
  }
}

std::vector<DamagedPayload> State::FindPayloads(const std::vector<PayloadId>& payloads) const {
  const absl::flat_hash_set<PayloadId> wanted(payloads.begin(), payloads.end());
  std::vector<DamagedPayload> found;
  const auto& tables = machine_->tables();
  for (uint32_t slot = 0; slot < tables.attempts().size(); ++slot) {
    if (!tables.attempts().InUse(slot)) continue;
    const rollout::AttemptRecord& attempt = tables.attempt(slot);
    for (const PayloadId id :
         {attempt.partial,
          attempt.rollout == kNone ? PayloadId() : tables.rollout(attempt.rollout).payload}) {
      if (id != PayloadId() && wanted.contains(id)) found.push_back({tables.IdOfAttempt(slot), id});
    }
  }
  const auto& kept = machine_->kept().table();
  for (uint32_t slot = 0; slot < kept.size(); ++slot) {
    if (!kept.InUse(slot) || !wanted.contains(kept[slot].payload)) continue;
    found.push_back({kept[slot].attempt, kept[slot].payload});
  }
  return found;
}

namespace {

RolloutView ViewOf(const KeptRecord& record) {
  return {.rollout = record.rollout,
          .group = record.group,
          .task = record.task,
          .attempt = record.attempt,
          .state = GroupState::kTrained,
          .kept = true,
          .status = record.status,
          .rewarded = record.rewarded,
          .reward = record.reward,
          .advantage = record.advantage,
          .tokens = record.tokens,
          .loss_tokens = record.loss_tokens,
          .version = record.version,
          .payload = record.payload,
          .payload_bytes = record.payload_bytes,
          .step = record.step};
}

}  // namespace

std::vector<RolloutView> State::Kept(uint64_t* cursor, size_t limit) const {
  std::vector<RolloutView> views;
  const auto& kept = machine_->kept().table();
  for (; *cursor < kept.size() && views.size() < limit; ++*cursor) {
    const auto slot = static_cast<uint32_t>(*cursor);
    if (kept.InUse(slot)) views.push_back(ViewOf(kept[slot]));
  }
  if (*cursor >= kept.size()) *cursor = UINT64_MAX;
  return views;
}

std::optional<RolloutView> State::FindKept(RolloutId rollout) const {
  const uint32_t slot = machine_->kept().Find(rollout);
  if (slot == kNone) return std::nullopt;
  return ViewOf(machine_->kept().table()[slot]);
}

std::optional<AttemptId> State::AttemptOf(RolloutId rollout) const {
  const auto& tables = machine_->tables();
  const uint32_t slot = tables.Find(rollout);
  if (slot == kNone) return std::nullopt;
  return tables.IdOfAttempt(tables.rollout(slot).attempt);
}

std::optional<uint64_t> State::OpenOrderOf(AttemptId attempt) const {
  const auto& tables = machine_->tables();
  const uint32_t slot = tables.Find(attempt);
  if (slot == kNone) return std::nullopt;
  const rollout::GroupRecord& group = tables.group(tables.attempt(slot).group);
  if (group.state != GroupState::kOpen) return std::nullopt;
  return group.sequence;
}

}  // namespace forebay::shard
