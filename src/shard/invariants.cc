// What must hold of a shard's state at every moment. Also run on snapshots from outside, so nothing
// is trusted before it is checked: tables first, then lists, then the sums over them.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "shard/limits.h"
#include "shard/machine.h"

namespace forebay::shard {

using rollout::AttemptRecord;
using rollout::AttemptState;
using rollout::GroupRecord;
using rollout::GroupState;
using rollout::RolloutRecord;

namespace {

// What the groups of one source add up to.
struct Sums {
  uint64_t open = 0, ready = 0, reserved = 0;
  uint64_t held = 0, in_reserve = 0, trained = 0;
  uint64_t unfinished = 0, held_back = 0, leased = 0, credits = 0, unpublished = 0;
  uint64_t bytes = 0;
};

void AddGroup(const rollout::Tables& tables, uint32_t slot, Sums* sums) {
  const GroupRecord& group = tables.group(slot);
  sums->open += group.state == GroupState::kOpen;
  sums->ready += group.state == GroupState::kReady;
  sums->reserved += group.state == GroupState::kReserved;
  (group.state == GroupState::kReserved  ? sums->in_reserve
   : group.state == GroupState::kTrained ? sums->trained
                                         : sums->held) += group.held();
  sums->unfinished += uint64_t{group.pending} + group.leased;
  sums->held_back += group.held_back();
  sums->leased += group.leased;
  sums->credits += group.credits;
  tables.ForEachRollout(slot, [&](uint32_t r) { sums->bytes += tables.rollout(r).payload_bytes; });
}

const char* Different(const Sums& sums, const SourceState& source) {
  const SourceCounters& c = source.counters;
  if (sums.open != source.open.size()) return "open groups are miscounted";
  if (sums.ready != source.ready.size()) return "ready groups are miscounted";
  if (sums.reserved != source.reserved_groups) return "reserved groups are miscounted";
  if (sums.held != c.held || sums.in_reserve != c.reserved) return "held rollouts are miscounted";
  if (sums.trained > c.trained) return "trained rollouts are miscounted";
  if (sums.unfinished != source.unfinished) return "unfinished attempts are miscounted";
  if (sums.held_back != source.held_back) return "attempts that are held back are miscounted";
  if (sums.leased != source.leased.total()) return "leases are miscounted";
  if (sums.credits + sums.unpublished != source.outstanding) return "admission is miscounted";
  uint64_t dropped = 0;
  for (uint64_t d : c.dropped) dropped += d;
  if (c.accepted != c.held + c.reserved + c.trained + c.evaluated + dropped) {
    return "an accepted rollout is not exactly one of held, reserved, trained, evaluated, dropped";
  }
  return "";
}

// Of steps that hold groups in this state; adds up how many.
const char* CheckHolds(const GroupTable& groups, const std::vector<StepHold>& holds,
                       GroupState state, uint64_t* listed) {
  for (size_t i = 0; i < holds.size(); ++i) {
    const StepHold& hold = holds[i];
    if (hold.groups.empty() || (i > 0 && holds[i - 1].step >= hold.step))
      return "steps are out of order";
    const bool fit = hold.groups.Walk(groups, [&](uint32_t slot) {
      return groups[slot].state == state && groups[slot].step == hold.step;
    });
    if (!fit) return "a list of a step's groups is broken";
    *listed += hold.groups.size();
  }
  return "";
}

}  // namespace

std::string Machine::CheckLists() const {
  const GroupTable& groups = tables_.groups();
  const auto in_state = [&](GroupState state) {
    return [&groups, state](uint32_t slot) { return groups[slot].state == state; };
  };
  uint64_t listed = 0;
  uint64_t queued = 0;
  const auto waits = [&](uint8_t flag, uint32_t eval) {
    return [&groups, flag, eval](uint32_t slot) {
      const GroupRecord& group = groups[slot];
      return group.state == GroupState::kOpen && group.to_hand_out() > 0 && group.eval == eval &&
             (group.flags & (GroupRecord::kRetry | GroupRecord::kFresh)) == flag;
    };
  };
  const auto queue_holds = [&](const HandOutQueue& queue, uint32_t eval) {
    queued += uint64_t{queue.retry.size()} + queue.fresh.size();
    return queue.retry.Walk(groups, waits(GroupRecord::kRetry, eval)) &&
           queue.fresh.Walk(groups, waits(GroupRecord::kFresh, eval));
  };
  for (const SourceState& source : sources_) {
    if (!source.open.Walk(groups, in_state(GroupState::kOpen)))
      return "a list of open groups is broken";
    listed += source.open.size();
    if (!queue_holds(source.queue, kNone)) return "a list of pending groups is broken";
    uint64_t size = 0, tokens = 0, next_version = 0;
    for (const ReadyQueue::Bucket& bucket : source.ready.buckets()) {
      if (bucket.version < next_version || bucket.groups.empty())
        return "ready groups are out of order";
      next_version = bucket.version + uint64_t{1};
      uint64_t sequence = 0;
      const bool holds = bucket.groups.Walk(groups, [&](uint32_t slot) {
        const GroupRecord& group = groups[slot];
        const bool later = group.sequence > sequence;
        sequence = group.sequence;
        tokens += group.tokens;
        return later && group.state == GroupState::kReady && group.version == bucket.version;
      });
      if (!holds) return "a list of ready groups is broken";
      size += bucket.groups.size();
    }
    if (size != source.ready.size() || tokens != source.ready.tokens())
      return "ready groups are miscounted";
    listed += size;
  }
  for (uint32_t i = 0; i < evals_.size(); ++i) {
    if (!queue_holds(evals_[i].queue, i))
      return "a list of an evaluation's pending groups is broken";
  }
  for (const auto& [holds, state] :
       {std::pair(&holds_, GroupState::kReserved), std::pair(&retained_, GroupState::kTrained)}) {
    const char* broken = CheckHolds(groups, *holds, state, &listed);
    if (broken[0] != '\0') return broken;
  }
  if (!closed_.Walk(groups, in_state(GroupState::kClosed)))
    return "the list of closed groups is broken";
  if (closed_.size() > options_.closed_groups_max) return "too many closed groups";
  listed += closed_.size();
  if (listed != groups.used()) return "a group is in no list, or in two";
  uint64_t pending_groups = 0;
  for (uint32_t slot = 0; slot < groups.size(); ++slot) {
    pending_groups += groups.InUse(slot) && groups[slot].to_hand_out() > 0;
  }
  return queued == pending_groups ? "" : "a group with attempts to hand out waits in no list";
}

std::string Machine::CheckEvals() const {
  if (evals_.size() > kEvalRunsMax) return "too many evaluation runs";
  std::vector<uint32_t> open(evals_.size());
  for (uint32_t slot = 0; slot < tables_.groups().size(); ++slot) {
    if (!tables_.groups().InUse(slot)) continue;
    const GroupRecord& group = tables_.group(slot);
    if (group.eval == kNone) continue;
    const bool fits = group.eval < evals_.size() && group.state == GroupState::kOpen &&
                      group.task.source() == evals_[group.eval].source;
    if (!fits) return "a group is of no evaluation";
    ++open[group.eval];
  }
  for (uint32_t i = 0; i < evals_.size(); ++i) {
    const EvalRun& run = evals_[i];
    const curriculum::Source* source = curriculum_.source(run.source);
    if (source == nullptr || run.end_task > source->tasks().size() ||
        run.next_task > run.end_task) {
      return "an evaluation's tasks are not there";
    }
    if (open[i] != run.open_groups) return "an evaluation's groups are miscounted";
    if (run.attempts < 1 || run.attempts > rollout::kAttemptsPerGroupMax ||
        run.pass_sums.size() > 13 || run.share > EvalRun::kSlot ||
        run.owed > EvalRun::kSlot * kAssignmentsMax) {
      return "an evaluation's value is out of range";
    }
    if (run.done != (run.next_task == run.end_task && run.open_groups == 0)) {
      return "an evaluation's end is wrong";
    }
  }
  return "";
}

std::string Machine::CheckSessions() const {
  std::vector<uint64_t> leases(sessions_.size());
  for (uint32_t slot = 0; slot < tables_.attempts().size(); ++slot) {
    if (!tables_.attempts().InUse(slot)) continue;
    const AttemptRecord& attempt = tables_.attempt(slot);
    if (attempt.state != AttemptState::kLeased) continue;
    if (attempt.session >= sessions_.size()) return "a lease is held by no session";
    ++leases[attempt.session];
  }
  for (uint32_t slot = 0; slot < leases.size(); ++slot) {
    if (leases[slot] != sessions_[slot].leases) return "a session's leases are miscounted";
  }
  return "";
}

std::string Machine::CheckSources() const {
  std::vector<Sums> sums(sources_.size());
  for (uint32_t slot = 0; slot < tables_.groups().size(); ++slot) {
    if (!tables_.groups().InUse(slot)) continue;
    AddGroup(tables_, slot, &sums[tables_.group(slot).task.source().value]);
  }
  for (const Unpublished& u : unpublished_) sums[u.source.value].unpublished += u.credits;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const SourceState& source = sources_[i];
    const char* broken = Different(sums[i], source);
    if (!source.leased.Holds()) broken = "leases by version are miscounted";
    if (!(source.payload_mean >= 0) || !std::isfinite(source.counters.reward_sum)) {
      broken = "a mean is out of range";
    }
    if (broken[0] != '\0') return absl::StrCat("source ", i, ": ", broken);
  }
  return "";
}

std::string Machine::CheckInvariants() const {
  const char* broken = tables_.Check();
  if (broken[0] != '\0') return broken;
  for (uint32_t slot = 0; slot < tables_.groups().size(); ++slot) {
    if (!tables_.groups().InUse(slot)) continue;
    const TaskId task = tables_.group(slot).task;
    const curriculum::Source* source = curriculum_.source(task.source());
    const bool known = source != nullptr && task.source().value < sources_.size() &&
                       task.index() < source->tasks().size();
    if (!known) return "a group's task is not there";
  }
  if (curriculum_.sources().size() > sources_.size()) return "a source has no state";
  for (const auto& source : curriculum_.sources()) {
    if (source->id().value >= sources_.size()) return "a source has no state";
  }
  for (const Unpublished& u : unpublished_) {
    if (u.source.value >= sources_.size()) return "a committed step is of no source";
  }
  for (const auto& check : {&Machine::CheckEvals, &Machine::CheckLists, &Machine::CheckSessions,
                            &Machine::CheckSources}) {
    std::string result = (this->*check)();
    if (!result.empty()) return result;
  }
  if (broken = history_.Check(curriculum_); broken[0] != '\0') return broken;
  if (broken = kept_.Check(options_.shard); broken[0] != '\0') return broken;
  for (uint32_t slot = 0; slot < kept_.table().size(); ++slot) {
    if (!kept_.table().InUse(slot)) continue;
    if (curriculum_.task(kept_.table()[slot].task) == nullptr)
      return "a kept rollout is of no task";
  }
  uint64_t held = 0, retained = 0;
  for (uint32_t slot = 0; slot < tables_.rollouts().size(); ++slot) {
    if (!tables_.rollouts().InUse(slot)) continue;
    const RolloutRecord& rollout = tables_.rollout(slot);
    const uint32_t group = tables_.attempt(rollout.attempt).group;
    const bool trained = tables_.group(group).state == GroupState::kTrained;
    (trained ? retained : held) += rollout.payload_bytes;
  }
  if (held != payload_bytes_ || retained != retained_bytes_) {
    return "payload bytes are miscounted";
  }
  return put_groups_.size() == put_group_order_.size() ? "" : "pushed groups are miscounted";
}

}  // namespace forebay::shard
