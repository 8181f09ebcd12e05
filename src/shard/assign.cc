// Hand-out of attempts: which, how many, and to whom.
//
// A request is filled from the share of evaluations, then from attempts that came back and from
// groups that are begun, then from new groups while admission allows, and what is left from
// evaluations again. A group is begun with all its attempts admitted at once, so that it can always
// be completed.
#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "shard/limits.h"
#include "shard/machine.h"
#include "shard/reply.h"

namespace forebay::shard {
namespace {

uint32_t AttemptsOf(const codec::SourceSettings& settings) {
  return std::clamp(settings.attempts_per_task, 1u, rollout::kAttemptsPerGroupMax);
}

bool Names(const std::vector<SourceId>& sources, SourceId source) {
  return std::find(sources.begin(), sources.end(), source) != sources.end();
}

bool Allows(const Assign& request, SourceId source) {
  return request.sources.empty() || Names(request.sources, source);
}

bool Fits(const Assign& request, const EvalRun& run) {
  return !run.done && (request.loads_any_version || request.version == run.version) &&
         Allows(request, run.source);
}

}  // namespace

struct Machine::HandOut {
  uint32_t session = kNone;
  uint64_t left = 0;
  uint32_t new_groups = 0;
  uint32_t first_token = 1;
  std::vector<LeaseRef>* answer = nullptr;
  std::vector<Assignment>* assignments = nullptr;  // nullptr: nobody waits for them
  Effects* effects = nullptr;
};

void Machine::Run(const Assign& c, Tag tag, Effects* effects) {
  AssignReply reply;
  const uint32_t slot = sessions_.Find(c.session);
  if (slot == kNone) {
    reply.status = UnknownSession(c.session);
    return AddReply(std::move(reply), tag, effects);
  }
  SessionRecord& session = sessions_[slot];
  if (c.request_id <= session.last_request) {
    if (c.request_id == session.last_request) reply = LastAnswer(session);
    if (reply.assignments.empty()) reply.reason = "superseded";
    return AddReply(std::move(reply), tag, effects);
  }
  session.version = c.version;
  session.answer.clear();
  HandOut out;
  out.session = slot;
  out.effects = effects;
  out.left = std::min(c.max, kAssignmentsMax);
  out.new_groups = c.new_groups_max;
  out.first_token = std::max(c.first_token, 1u);
  out.answer = &session.answer;
  if (tag != 0) {
    reply.assignments.reserve(out.left);
    out.assignments = &reply.assignments;
  }
  HandOutEvals(c, /*share_only=*/true, &out);
  HandOutTrain(c, &out);
  if (out.left > 0) HandOutEvals(c, /*share_only=*/false, &out);
  // A request that got nothing may be made again.
  if (!session.answer.empty()) session.last_request = c.request_id;
  session.leases += session.answer.size();
  if (tag == 0) return;
  if (out.left > 0) reply.reason = WhatIsAvailable(c).reason;
  AddReply(std::move(reply), tag, effects);
}

void Machine::HandOutQueued(HandOutQueue& queue, uint64_t limit, HandOut* out) {
  limit = std::min(limit, out->left);
  while (limit > 0 && !queue.empty()) {
    const uint32_t slot = queue.front();
    SourceState& source = SourceOf(slot);
    const uint32_t eval = tables_.group(slot).eval;
    const PolicyVersion version = eval == kNone ? versions_.published : evals_[eval].version;
    const uint64_t count = std::min<uint64_t>(limit, tables_.group(slot).to_hand_out());
    Assignment of_group;
    if (out->assignments != nullptr) FillFromGroup(slot, &of_group);
    for (uint64_t i = 0; i < count; ++i) {
      const uint32_t attempt = tables_.Lease(slot, out->session, version.number);
      uint32_t& token = tables_.attempt(attempt).token;
      if (token == 1) token = out->first_token;
      if (tables_.attempt(attempt).partial != PayloadId()) DropOldPartial(attempt, out->effects);
      source.leased.Add(version.number);
      out->answer->push_back({tables_.IdOfAttempt(attempt), tables_.attempt(attempt).token});
      if (out->assignments != nullptr) {
        FillFromAttempt(attempt, &out->assignments->emplace_back(of_group));
      }
    }
    source.counters.assignments += count;
    limit -= count;
    out->left -= count;
    if (tables_.group(slot).to_hand_out() == 0) queue.Remove(tables_.groups(), slot);
  }
}

// A prefix from weights that are too old would make the whole rollout stale.
void Machine::DropOldPartial(uint32_t slot, Effects* effects) {
  rollout::AttemptRecord& attempt = tables_.attempt(slot);
  const codec::SourceSettings& settings = SettingsOfGroup(attempt.group);
  const bool by_prefix =
      settings.lag_of == codec::LagOf::kOldest || settings.lag_of == codec::LagOf::kStart;
  if (tables_.group(attempt.group).eval != kNone || !by_prefix) return;
  if (!UselessAt(attempt.partial_version, settings)) return;
  FreePayload(attempt.partial, 0, effects);
  attempt.partial = PayloadId();
}

// What is the same for all attempts of a group; the seed's first part.
void Machine::FillFromGroup(uint32_t slot, Assignment* assignment) const {
  const rollout::GroupRecord& group = tables_.group(slot);
  const curriculum::TaskRecord& task = *curriculum_.task(group.task);
  assignment->task = group.task;
  assignment->group = tables_.IdOfGroup(slot);
  assignment->seed = HashCombine(options_.run_seed, task.external_hash);
  assignment->version.branch = versions_.branch;
  assignment->content = task.content;
  assignment->lease_ms = curriculum_.source(group.task.source())->lease_ms();
  if (group.eval == kNone) return;
  assignment->version.branch = evals_[group.eval].version.branch;
  assignment->eval_run = evals_[group.eval].run;
}

void Machine::FillFromAttempt(uint32_t slot, Assignment* assignment) const {
  const rollout::AttemptRecord& attempt = tables_.attempt(slot);
  const uint64_t first = tables_.group(attempt.group).sequence * rollout::kAttemptsPerGroupMax;
  assignment->attempt = tables_.IdOfAttempt(slot);
  assignment->token = attempt.token;
  assignment->number = attempt.number;
  assignment->seed = HashCombine(assignment->seed, first + attempt.number);
  assignment->version.number = attempt.version;
  assignment->partial = attempt.partial;
}

void Machine::HandOutEvals(const Assign& c, bool share_only, HandOut* out) {
  bool turn_taken = false;
  for (uint32_t i = 0; i < evals_.size() && out->left > 0 && !turn_taken; ++i) {
    EvalRun& run = evals_[i];
    if (!Fits(c, run) || (run.queue.empty() && run.next_task == run.end_task)) continue;
    turn_taken = share_only;
    uint64_t quota = out->left;
    if (share_only) {
      run.owed = std::min(run.owed + run.share * c.max, EvalRun::kSlot * kAssignmentsMax);
      quota = std::min(quota, run.owed / EvalRun::kSlot);
    }
    const uint64_t before = out->left;
    while (before - out->left < quota) {
      if (run.queue.empty() && !BeginEvalGroup(i)) break;
      HandOutQueued(run.queue, quota - (before - out->left), out);
    }
    if (share_only) run.owed -= (before - out->left) * EvalRun::kSlot;
  }
}

bool Machine::BeginEvalGroup(uint32_t eval) {
  EvalRun& run = evals_[eval];
  while (run.next_task < run.end_task) {
    const TaskId task = TaskId::Make(run.source, run.next_task++);
    if (curriculum_.task(task)->quarantined) {
      --run.tasks;
      EndEvalIfDone(&run);
      continue;
    }
    const uint32_t group = tables_.AddGroup(task, run.attempts, ++sequence_);
    curriculum_.GroupBegun(task);
    tables_.group(group).eval = eval;
    SourceState& source = SourceOf(group);
    source.open.PushBack(tables_.groups(), group);
    source.unfinished += run.attempts;
    ++source.counters.groups_begun;
    run.queue.PushFresh(tables_.groups(), group);
    ++run.open_groups;
    return true;
  }
  return false;
}

void Machine::HandOutTrain(const Assign& c, HandOut* out) {
  if (versions_.published.branch != versions_.branch) return;
  for (uint32_t i = 0; i < sources_.size() && out->left > 0; ++i) {
    if (sources_[i].queue.empty() || !Allows(c, SourceId(i))) continue;
    if (UselessAt(versions_.published.number, SettingsOf(SourceId(i)))) continue;
    HandOutQueued(sources_[i].queue, out->left, out);
  }
  if (out->left == 0 || out->new_groups == 0) return;
  admission().Limits(&limits_);
  eligible_.assign(sources_.size(), 0);
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    eligible_[i] = sources_[i].outstanding < limits_[i] && Allows(c, SourceId(i));
  }
  while (out->left > 0 && out->new_groups > 0) {
    const std::optional<SourceId> source = curriculum_.ChooseSource(eligible_);
    if (!source) return;
    SourceState& state = sources_[source->value];
    BeginTrainGroup(*source, &limits_);
    eligible_[source->value] = state.outstanding < limits_[source->value];
    --out->new_groups;
    HandOutQueued(state.queue, out->left, out);
  }
}

void Machine::BeginTrainGroup(SourceId source, std::vector<uint64_t>* limits) {
  const std::optional<TaskId> task = curriculum_.DrawTask(source, prng_);
  if (!task) {
    (*limits)[source.value] = 0;
    return;
  }
  const uint32_t attempts = AttemptsOf(SettingsOf(source));
  const uint32_t group = tables_.AddGroup(*task, attempts, ++sequence_);
  curriculum_.GroupBegun(*task);
  curriculum_.Charge(source, attempts);
  tables_.group(group).credits = attempts;
  SourceState& state = sources_[source.value];
  const uint32_t screened = SettingsOf(source).screen_attempts;
  tables_.group(group).screening = static_cast<uint16_t>(screened < attempts ? screened : 0);
  state.held_back += tables_.group(group).held_back();
  state.outstanding += attempts;
  state.unfinished += attempts;
  state.open.PushBack(tables_.groups(), group);
  state.queue.PushFresh(tables_.groups(), group);
  ++state.counters.groups_begun;
}

AssignReply Machine::LastAnswer(const SessionRecord& session) const {
  AssignReply reply;
  for (const LeaseRef& lease : session.answer) {
    const uint32_t slot = tables_.Find(lease.attempt);
    if (slot == kNone) continue;
    const rollout::AttemptRecord& attempt = tables_.attempt(slot);
    if (attempt.token != lease.token || attempt.state != rollout::AttemptState::kLeased) continue;
    Assignment& assignment = reply.assignments.emplace_back();
    FillFromGroup(attempt.group, &assignment);
    FillFromAttempt(slot, &assignment);
  }
  return reply;
}

SourceSupply Machine::SupplyOf(const curriculum::Source& source, uint64_t limit,
                               uint64_t new_groups_max) const {
  const codec::SourceSettings& settings = source.settings();
  const SourceState& state = sources_[source.id().value];
  SourceSupply supply;
  if (versions_.published.branch == versions_.branch &&
      !UselessAt(versions_.published.number, settings)) {
    supply.attempts = state.unfinished - state.leased.total() - state.held_back;
  }
  const uint32_t per_group = AttemptsOf(settings);
  if (state.outstanding < limit && source.place().TakesPart()) {
    const uint64_t room = (limit - state.outstanding + per_group - 1) / per_group;
    supply.new_groups = std::min<uint64_t>(new_groups_max, room);
    supply.attempts += supply.new_groups * per_group;
    supply.idle = supply.new_groups == 0 ? codec::IdleReason::kMemory : codec::IdleReason::kNone;
  } else if (source.CanDraw()) {
    supply.idle = codec::IdleReason::kAdmission;
  } else if (settings.paused && source.tasks().size() > 0) {
    supply.idle = codec::IdleReason::kPaused;
  }
  return supply;
}

Available Machine::WhatIsAvailable(const Assign& request) const {
  Available available;
  bool other_version = false;
  for (const EvalRun& run : evals_) {
    if (run.done || (run.queue.empty() && run.next_task == run.end_task)) continue;
    if (!Fits(request, run)) {
      other_version |= Allows(request, run.source);
      continue;
    }
    available.attempts += uint64_t{run.queue.retry.size()} + run.queue.fresh.size() +
                          uint64_t{run.end_task - run.next_task} * run.attempts;
  }
  std::vector<uint64_t> limits;
  admission().Limits(&limits);
  uint64_t new_groups = request.new_groups_max;
  bool over_limit = false, memory = false, paused = false;
  for (const auto& source : curriculum_.sources()) {
    const bool train = source->settings().purpose == codec::Purpose::kTrain;
    if (!train || !Allows(request, source->id())) continue;
    const SourceSupply supply = SupplyOf(*source, limits[source->id().value], new_groups);
    available.attempts += supply.attempts;
    new_groups -= supply.new_groups;
    memory |= supply.idle == codec::IdleReason::kMemory;
    over_limit |= supply.idle == codec::IdleReason::kAdmission;
    paused |= supply.idle == codec::IdleReason::kPaused;
  }
  if (available.attempts > 0) return available;
  available.reason = memory          ? "memory"
                     : over_limit    ? "admission"
                     : paused        ? "paused"
                     : other_version ? "none_for_version"
                                     : "no_tasks";
  return available;
}

}  // namespace forebay::shard
