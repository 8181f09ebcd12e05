// Groups that are pushed whole, without assignments: own curricula, offline data.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "shard/check_rollout.h"
#include "shard/limits.h"
#include "shard/machine.h"
#include "shard/reply.h"

namespace forebay::shard {
namespace {

std::vector<PushOutcome> RefuseAll(const PutGroup& c, const char* field, std::string message) {
  return std::vector<PushOutcome>(std::max<size_t>(c.rollouts.size(), 1),
                                  Refuse(PushResult::kInvalid, field, std::move(message)));
}

// One bad rollout refuses its group.
void RefuseRest(std::vector<PushOutcome>* outcomes) {
  for (PushOutcome& outcome : *outcomes) {
    if (outcome.result != PushResult::kAccepted) continue;
    outcome = Refuse(PushResult::kInvalid, "rollouts", "another rollout of the group is refused");
  }
}

}  // namespace

std::vector<PushOutcome> Machine::CheckPutGroup(const PutGroup& c) const {
  if (c.request_id == 0) return RefuseAll(c, "group.request_id", "0; choose another id");
  const curriculum::Source* source = curriculum_.source(c.source);
  if (source == nullptr) {
    return RefuseAll(c, "group.source", absl::StrCat("source ", c.source.value, " is not known"));
  }
  const codec::SourceSettings& settings = source->settings();
  if (settings.purpose != codec::Purpose::kTrain) {
    return RefuseAll(c, "group.source", absl::StrCat("\"", settings.name, "\" is for evaluation"));
  }
  if (versions_.published.branch != versions_.branch) {
    return std::vector<PushOutcome>(
        std::max<size_t>(c.rollouts.size(), 1),
        Refuse(PushResult::kStale, "versions",
               absl::StrCat("no version of branch ", versions_.branch, " is published yet")));
  }
  if (c.rollouts.empty() || c.rollouts.size() > rollout::kAttemptsPerGroupMax) {
    return RefuseAll(
        c, "rollouts",
        absl::StrCat(c.rollouts.size(), " rollouts; 1 to ", rollout::kAttemptsPerGroupMax));
  }
  if (!source->tasks().Find(c.task.external_hash)) {
    const auto fresh = source->tasks().CheckNew({&c.task, 1});
    if (!fresh.ok()) return RefuseAll(c, "group.task", std::string(fresh.status().message()));
  }
  std::vector<PushOutcome> outcomes(c.rollouts.size());
  bool refused = false;
  for (size_t i = 0; i < c.rollouts.size(); ++i) {
    const RolloutMeta& meta = c.rollouts[i];
    Refusal refusal = CheckRollout(meta, settings, versions_, nullptr);
    if (!refusal && meta.partial) {
      refusal = Refuse(PushResult::kInvalid, "partial", "true; a group is pushed finished");
    }
    if (!refusal && meta.rewards_present != AllRewards(settings)) {
      refusal = Refuse(PushResult::kInvalid, "rewards",
                       "a reward is missing; a group is pushed with all of them");
    }
    if (!refusal) {
      std::vector<SequenceMeta> sequences = {meta.first};
      sequences.insert(sequences.end(), meta.more.begin(), meta.more.end());
      refusal = CheckStale(sequences, versions_.published, settings);
    }
    if (!refusal) continue;
    outcomes[i] = *std::move(refusal);
    refused = true;
  }
  if (!refused) return {};
  RefuseRest(&outcomes);
  return outcomes;
}

void Machine::Run(const PutGroup& c, Tag tag, Effects* effects) {
  PutRolloutsReply reply;
  if (Remembers(c.request_id)) {
    reply.accepted = static_cast<uint32_t>(c.rollouts.size());
    reply.outcomes.assign(c.rollouts.size(),
                          Refuse(PushResult::kDuplicate, "", "it is in already"));
    RepeatPutGroup(c, effects);
    return AddReply(std::move(reply), tag, effects);
  }
  reply.outcomes = CheckPutGroup(c);
  if (!reply.outcomes.empty()) {
    for (const RolloutMeta& meta : c.rollouts) FreePayload(meta.payload, 0, effects);
    if (c.task.content != PayloadId()) effects->dead_contents.push_back(c.task.content);
    return AddReply(std::move(reply), tag, effects);
  }
  reply.accepted = static_cast<uint32_t>(c.rollouts.size());
  reply.outcomes.resize(c.rollouts.size());
  const GroupId group = AddPutGroup(c, effects);
  put_group_order_.emplace_back(c.request_id, group);
  put_groups_[c.request_id] = group;
  if (put_group_order_.size() > kPutGroupsRemembered) {
    put_groups_.erase(put_group_order_.front().first);
    put_group_order_.pop_front();
  }
  AddReply(std::move(reply), tag, effects);
}

// A call that is repeated has written its payloads once more: they are dead. A command that is
// repeated names those that are held: they are not.
void Machine::RepeatPutGroup(const PutGroup& c, Effects* effects) {
  const uint32_t slot = tables_.Find(put_groups_.find(c.request_id)->second);
  std::vector<PayloadId> held;
  if (slot != kNone) {
    tables_.ForEachRollout(slot, [&](uint32_t r) { held.push_back(tables_.rollout(r).payload); });
  }
  for (const RolloutMeta& meta : c.rollouts) {
    const bool dead = std::find(held.begin(), held.end(), meta.payload) == held.end();
    if (dead) FreePayload(meta.payload, 0, effects);
  }
  const std::optional<uint32_t> index = curriculum_.Find(c.source, c.task.external_hash);
  const bool used =
      index && curriculum_.task(TaskId::Make(c.source, *index))->content == c.task.content;
  if (!used && c.task.content != PayloadId()) effects->dead_contents.push_back(c.task.content);
}

GroupId Machine::AddPutGroup(const PutGroup& c, Effects* effects) {
  std::optional<uint32_t> index = curriculum_.Find(c.source, c.task.external_hash);
  if (!index) {
    FOREBAY_CHECK(curriculum_.AddTasks(c.source, {&c.task, 1}, &effects->dead_contents).ok());
    index = curriculum_.Find(c.source, c.task.external_hash);
  } else if (c.task.content != PayloadId() &&
             c.task.content != curriculum_.task(TaskId::Make(c.source, *index))->content) {
    effects->dead_contents.push_back(c.task.content);
  }
  const TaskId task = TaskId::Make(c.source, *index);
  const uint32_t size = static_cast<uint32_t>(c.rollouts.size());
  const uint32_t slot = tables_.AddGroup(task, size, ++sequence_);
  curriculum_.GroupBegun(task);
  SourceState& source = sources_[c.source.value];
  rollout::GroupRecord& group = tables_.group(slot);
  group.flags |= rollout::GroupRecord::kPushed;
  group.credits = size;
  source.outstanding += size;
  source.unfinished += size;
  source.open.PushBack(tables_.groups(), slot);
  ++source.counters.groups_begun;
  size_t i = 0;
  tables_.ForEachAttempt(slot, [&](uint32_t attempt) {
    AcceptOrDrop(attempt, c.rollouts[i++], versions_.published, effects);
  });
  const GroupId id = tables_.IdOfGroup(slot);
  FinishIfComplete(slot, effects);
  return id;
}

}  // namespace forebay::shard
